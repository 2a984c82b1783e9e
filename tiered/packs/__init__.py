"""Packs: small segments of many topics in one object, which the ledger names once; and the merging of packs."""
