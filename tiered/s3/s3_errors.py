"""What S3 and its client library say, in our words: the one place where their exceptions are translated.

Source: the error codes of the S3 API; AWS answers racing conditional writes with 409 ConditionalRequestConflict, which
means "nothing was written, try again".

A 404 counts as a missing object only when its body is S3's error NoSuchKey. A load balancer without a server behind it
answers 404, too: through it a ledger would look collected. An answer to HEAD has no body: see `S3ObjectStore.head`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError, SSLError

from thermocline.remoting.errors import MQError, ObjectNotFoundError, ObjectStoreUnavailableError, SegmentSizeError
from thermocline.tiered.objects import AlreadyExistsError, ObjectStoreRefusedError, UntrustedStoreError

NOT_FOUND_CODES = frozenset({"NoSuchKey", "NotFound"})
UNNAMED_CODES = frozenset({"", "404"})
"""What the client library makes of a 404 whose body is no error of S3."""
EXISTS_CODES = frozenset({"412", "PreconditionFailed"})
RANGE_CODES = frozenset({"416", "InvalidRange"})
NOT_IMPLEMENTED = 501
NOT_YET_VALID, HAS_EXPIRED = 9, 10
AUTHORITY_UNKNOWN = (18, 19, 20, 21)
"""X509_V_ERR_*: who signed is not among those that are trusted."""
RETRY_CODES = frozenset(
    {
        "408",
        "409",
        "429",
        "BadDigest",
        "ConditionalRequestConflict",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)


@contextmanager
def translated(key: str, **place: object) -> Iterator[None]:
    """Raise what happens inside as one of our errors. `place`: where the store is, named in what it does not do.

    Raises:
        ObjectNotFoundError, AlreadyExistsError, SegmentSizeError: As their names say.
        ObjectStoreRefusedError: The request is refused, and would be again.
        UntrustedStoreError: The certificate's issuer is not trusted, or it is another host's.
        ObjectStoreUnavailableError: No answer, or one that asks to try again.
    """
    try:
        yield
    except MQError:
        raise
    except ClientError as error:
        raise from_client_error(error, key, **place) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ObjectStoreRefusedError(
            "there are no credentials for the object store", **place, key=key, reason=_one_line(error)
        ) from error
    except SSLError as error:
        raise from_tls_error(error, key, **place) from error
    except (TimeoutError, BotoCoreError, aiohttp.ClientError, OSError) as error:
        raise ObjectStoreUnavailableError(
            "the object store gives no answer", **place, key=key, reason=_one_line(error)
        ) from error


def from_tls_error(error: SSLError, key: str, **place: object) -> MQError:
    """Our error for a handshake that failed. A certificate that is too old is an outage: its owner ends it."""
    seen = getattr(error.kwargs.get("error"), "certificate_error", None)
    if not isinstance(seen, ssl.SSLCertVerificationError) or seen.verify_code in (NOT_YET_VALID, HAS_EXPIRED):
        return ObjectStoreUnavailableError(
            "the object store gives no answer", **place, key=key, reason=_one_line(error)
        )
    way_out = ": name a file with its authority, by ca= in the URL or in AWS_CA_BUNDLE"
    return UntrustedStoreError(
        f"the certificate of the object store is not trusted ({seen.verify_message.rstrip('.')})"
        + (way_out if seen.verify_code in AUTHORITY_UNKNOWN else ""),
        endpoint=str(error.kwargs.get("endpoint_url", "")).partition("?")[0],
    )


def from_client_error(error: ClientError, key: str, **place: object) -> MQError:
    """Our error for an answer of the store; `place` as for `translated`."""
    response: dict[str, Any] = dict(error.response)
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    is_unnamed = status == 404 and code in UNNAMED_CODES
    if code in NOT_FOUND_CODES or (is_unnamed and error.operation_name == "HeadObject"):
        return ObjectNotFoundError("there is no such object", key=key)
    if is_unnamed:
        return ObjectStoreUnavailableError("a 404 that is no answer of an object store", **place, key=key)
    if code in EXISTS_CODES or status == 412:
        return AlreadyExistsError(key=key)
    if code in RANGE_CODES or status == 416:
        return SegmentSizeError("the object ends before the range", key=key)
    if code in RETRY_CODES or status in (408, 409, 429) or (status >= 500 and status != NOT_IMPLEMENTED):
        return ObjectStoreUnavailableError(
            "the object store asks to try again", **place, key=key, code=code, status=status
        )
    return ObjectStoreRefusedError("the object store refuses", **place, key=key, code=code, status=status)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
