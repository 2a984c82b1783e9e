"""Tier: commands on the cold tier, its bucket and its cost."""
