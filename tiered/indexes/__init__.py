"""Index objects: lookups by key and by place in the log at a fixed number of requests. Design: ADR 0037."""
