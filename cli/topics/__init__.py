"""Topics: commands on topics."""
