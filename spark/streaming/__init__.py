"""A streaming read: cold history first, then what brokers have flushed, along one line of offsets."""
