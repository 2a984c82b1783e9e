"""Records: a message as bytes: layout, properties, flags, batches and compression."""
