"""A batch read: its options, its plan, and the tasks that fetch and decode."""
