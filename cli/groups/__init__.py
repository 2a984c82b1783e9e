"""Groups: commands on consumer groups."""
