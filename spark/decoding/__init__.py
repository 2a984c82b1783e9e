"""Record bytes to Arrow batches with no Python per record."""
