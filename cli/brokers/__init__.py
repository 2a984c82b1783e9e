"""Brokers: commands that start and administer brokers and NameServers."""
