"""Follower: a read-only broker on another's cold tier (`thermocline broker --read-only-from`)."""
