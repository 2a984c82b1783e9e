"""S3Options: where a bucket is, how to reach it, and how it is to keep objects.

Importing this loads no S3 client, which takes a second.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from thermocline.remoting.errors import InvalidRequestError

MIB = 1024 * 1024
STALLED_READ_TIMEOUTS = 4
SSE_KMS = "aws:kms"
SSE_KINDS = ("AES256", SSE_KMS)
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Classes whose objects must be restored, for minutes to days, before they can be read."""
CREDENTIAL_KINDS = ("keys", "environment", "profile", "web-identity", "container", "instance", "anonymous")
"""Sources of credentials; what each is: `s3_credentials.py`."""
_CLASS_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """See the module's header. What is None comes from the environment, as for every AWS client.

    Raises:
        InvalidRequestError: Options contradict each other, or name what nothing here could live with.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    credentials: tuple[str, ...] | None = None
    """Which of `CREDENTIAL_KINDS` are asked, in this order; None: the keys above, else whatever AWS clients ask."""
    profile: str | None = None
    """With `profile` among `credentials`; None: `AWS_PROFILE`, else `default`."""
    credentials_file: str | None = None
    """With `profile` among `credentials`; None: `AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`."""
    path_style: bool | None = None
    """None: when an endpoint is given."""
    storage_class: str | None = None
    """Of objects that hold history; what is small and short-lived stays in the bucket's own (see `keeps_history`)."""
    sse: str | None = None
    """How the store encrypts every object at rest, one of `SSE_KINDS`; None: as the bucket says."""
    sse_kms_key_id: str | None = None
    """With `aws:kms`; None: the account's key for S3."""
    ca: str | None = None
    """Path of a PEM file with the authorities to trust; None: `AWS_CA_BUNDLE`, else those that the client brings."""
    connections_max: int = 32
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    put_bytes_max: int = 320 * MIB
    """Above the default size of a pack and its columns, so that what does not compress is one request as well: 8 parts
    are ten. The body is sent from its file or memory, in pieces: its size costs no memory."""
    part_bytes: int = 32 * MIB
    part_concurrency_max: int = 4

    def __post_init__(self) -> None:
        if self.storage_class is not None:
            if self.storage_class.upper() in ARCHIVES:
                raise InvalidRequestError(
                    "history is read at once, and objects of this storage class cannot be: they are restored first",
                    storage_class=self.storage_class,
                )
            if not _CLASS_NAME.fullmatch(self.storage_class):
                raise InvalidRequestError("this is no name of a storage class", storage_class=self.storage_class)
        unknown = set(self.credentials or ()) - set(CREDENTIAL_KINDS)
        if unknown or self.credentials == ():
            raise InvalidRequestError(
                f"credentials are of {', '.join(CREDENTIAL_KINDS)}", credentials=list(self.credentials or ())
            )
        if self.sse is not None and self.sse not in SSE_KINDS:
            raise InvalidRequestError(f"sse is one of {', '.join(SSE_KINDS)}", sse=self.sse)
        if self.sse_kms_key_id is not None and self.sse != SSE_KMS:
            raise InvalidRequestError(f"sse_kms_key_id is for sse={SSE_KMS}", sse=self.sse)
        if self.ca is not None and self.endpoint is not None and not self.endpoint.lower().startswith("https://"):
            raise InvalidRequestError("ca is for an https endpoint, and this one is not", endpoint=self.endpoint)

    @property
    def stalled_s_max(self) -> float:
        """How long an upload may go on while the store takes nothing of it. Far above the time for an answer: pieces
        also wait for a thread that reads them, and threads may all be compressing."""
        return STALLED_READ_TIMEOUTS * self.read_timeout_s

    def put_requests(self, size_bytes: float) -> int:
        """How many requests it takes to put an object of so many bytes."""
        if size_bytes <= self.put_bytes_max:
            return 1
        return math.ceil(size_bytes / self.part_bytes) + 2  # begun, its parts, completed
