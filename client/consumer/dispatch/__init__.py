"""Dispatch: how a push consumer hands received messages to its listener, and what it counts."""
