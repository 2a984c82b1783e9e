"""S3Options: where a bucket is, and how to reach it. Importing this loads no S3 client, which takes a second."""

from __future__ import annotations

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
    put_bytes_max: int = 192 * MIB
    """Above the default segment size, so that what does not compress is one request as well: parts cost six more."""
    part_bytes: int = 32 * MIB
    part_concurrency_max: int = 4
