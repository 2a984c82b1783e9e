"""How a worker reaches the bucket: URLs, options, the settings of s3a, one open store a process."""
