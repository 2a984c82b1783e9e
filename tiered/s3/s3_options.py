"""S3Options: where a bucket is, and how to reach it. Importing this loads no S3 client, which takes a second."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Where the bucket is, and how to reach it. What is None comes from the environment, as for every AWS client."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    """None: when an endpoint is given."""
    connections_max: int = 32
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    put_bytes_max: int = 320 * MIB
    """Above the default size of a pack and its columns, so that what does not compress is one request as well: 8 parts
    are ten. The body is sent from the file or the memory that it lies in, in pieces: its size costs no memory."""
    part_bytes: int = 32 * MIB
    part_concurrency_max: int = 4

    def put_requests(self, size_bytes: float) -> int:
        """How many requests it takes to put an object of so many bytes."""
        if size_bytes <= self.put_bytes_max:
            return 1
        return math.ceil(size_bytes / self.part_bytes) + 2  # begun, its parts, completed
