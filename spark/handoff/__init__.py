"""Exact hand-off: snapshots that every action reads alike, receipts of what was read, and groups moved to them."""
