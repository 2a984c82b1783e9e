"""StoreOptions: how the tasks of a read reach the bucket.

Options of a read come under names of their own (`s3.endpoint`) or as Hadoop's (`fs.s3a.endpoint`, and
`fs.s3a.bucket.NAME.endpoint` for one bucket); the first that is there counts:

    s3.*  >  fs.s3a.bucket.NAME.*  >  fs.s3a.*

    s3.endpoint       fs.s3a.endpoint               with its scheme, else https
    s3.tls            fs.s3a.connection.ssl.enabled false: http for an endpoint without a scheme
    s3.region         fs.s3a.endpoint.region
    s3.pathStyle      fs.s3a.path.style.access      true whenever an endpoint is named, unless said otherwise
    s3.accessKey      fs.s3a.access.key             none: environment, profile, web identity or instance role
    s3.secretKey      fs.s3a.secret.key
    s3.sessionToken   fs.s3a.session.token
    s3.ca                                           PEM file of authorities, on every machine; the JVM's are not read
    s3.sse            fs.s3a.encryption.algorithm   of the pins that a read puts: AES256, or aws:kms (s3a's SSE-KMS)
    s3.sseKmsKeyId    fs.s3a.encryption.key

Other encryptions of s3a (SSE-C, CSE) do not carry over: no broker writes by them. Its storage class neither: what a
read writes holds no history.

What else stands under fs.s3a. (timeouts, retries, providers of credentials, proxies) is s3a's own and not looked at.

Secrets travel inside the pickled data source to the tasks; they are not in `repr`, plans or errors. Better name none
and let the executors find their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.s3.s3_options import SSE_KMS

HADOOP_PREFIX = "fs.s3a."
BUCKET_PREFIX = "fs.s3a.bucket."
_NAMES = frozenset(
    {
        *("s3.endpoint", "s3.tls", "s3.region", "s3.pathstyle", "s3.accesskey", "s3.secretkey", "s3.sessiontoken"),
        *("s3.ca", "s3.sse", "s3.ssekmskeyid"),
    }
)
# Regions that mean "find out yourself" to Hadoop; no region is the same here.
_REGION_AUTOMATIC = frozenset({"", "auto", "ec2", "sdk", "null"})
_SSE_OF_HADOOP = {"AES256": "AES256", "SSE-KMS": SSE_KMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of all buckets, as given; `for_bucket` resolves one. Hashable, so that clients can be kept by it."""

    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def for_bucket(self, bucket: str) -> BucketOptions:
        """What holds for this bucket.

        Raises:
            InvalidRequestError: A value cannot be used.
        """
        values = dict(self.values)

        def find(name: str, hadoop_name: str) -> str | None:
            for key in (name, f"{BUCKET_PREFIX}{bucket}.{hadoop_name}", f"{HADOOP_PREFIX}{hadoop_name}"):
                value = values.get(key.lower(), "").strip()
                if value:
                    return value
            return None

        endpoint = find("s3.endpoint", "endpoint")
        if endpoint is not None:
            tls = (find("s3.tls", "connection.ssl.enabled") or "true").lower() != "false"
            endpoint = _endpoint_url(endpoint, tls=tls)
        region = find("s3.region", "endpoint.region")
        path_style = find("s3.pathStyle", "path.style.access")
        access_key = find("s3.accessKey", "access.key")
        secret_key = find("s3.secretKey", "secret.key")
        if (access_key is None) != (secret_key is None):
            raise InvalidRequestError("an access key and a secret key go together", bucket=bucket)
        sse = find("s3.sse", "encryption.algorithm")
        if not values.get("s3.sse", "").strip():
            sse = _SSE_OF_HADOOP.get(sse or "")
        return BucketOptions(
            endpoint=endpoint,
            region=None if region is None or region.lower() in _REGION_AUTOMATIC else region,
            path_style=None if path_style is None else path_style.lower() == "true",
            access_key=access_key,
            secret_key=secret_key,
            session_token=find("s3.sessionToken", "session.token"),
            ca=values.get("s3.ca", "").strip() or None,
            sse=sse,
            sse_kms_key_id=find("s3.sseKmsKeyId", "encryption.key") if sse == SSE_KMS else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions:
    """How to reach one bucket; None leaves the choice to the client and its own configuration."""

    endpoint: str | None
    region: str | None
    path_style: bool | None
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    ca: str | None = None
    sse: str | None = None
    sse_kms_key_id: str | None = None


def is_store_option(name: str) -> bool:
    """Whether an option of a read, in lower case, is one of these. Whatever else Hadoop knows of s3a is let pass."""
    return name in _NAMES or name.startswith(HADOOP_PREFIX)


def store_options(options: Mapping[str, str]) -> StoreOptions:
    """Take what concerns the bucket out of all options of a read."""
    return StoreOptions(
        values=tuple(
            sorted(
                (name.lower(), value)
                for name, value in options.items()
                if name.lower().startswith(("s3.", HADOOP_PREFIX)) and value is not None
            )
        )
    )


def _endpoint_url(endpoint: str, *, tls: bool) -> str:
    url = endpoint if "://" in endpoint else f"{'https' if tls else 'http'}://{endpoint}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequestError(f"{endpoint!r} is no endpoint; write http://host:9000", option="s3.endpoint")
    return url
