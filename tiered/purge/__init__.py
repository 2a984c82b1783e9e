"""Purge: what nobody can see any more leaves the bucket when it is asked for."""
