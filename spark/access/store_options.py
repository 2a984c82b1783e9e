"""StoreOptions: how the tasks of a read reach the bucket.

Options of a read come under names of their own (`s3.endpoint`) or as Hadoop's (`fs.s3a.endpoint`, and
`fs.s3a.bucket.NAME.endpoint` for one bucket); the first that is there counts:

    s3.*  >  fs.s3a.bucket.NAME.*  >  fs.s3a.*

    s3.endpoint         fs.s3a.endpoint                      with its scheme, else https
    s3.tls              fs.s3a.connection.ssl.enabled        false: http for an endpoint without a scheme
    s3.region           fs.s3a.endpoint.region
    s3.pathStyle        fs.s3a.path.style.access             true whenever an endpoint is named, unless set
    s3.accessKey        fs.s3a.access.key                    none: environment, profile, web identity or instance role
    s3.secretKey        fs.s3a.secret.key
    s3.sessionToken     fs.s3a.session.token
    s3.credentials      fs.s3a.aws.credentials.provider      sources, asked in this order (hadoop_credentials.py)
    s3.profile          fs.s3a.auth.profile.name             as in Hadoop, of ProfileAWSCredentialsProvider alone
    s3.credentialsFile  fs.s3a.auth.profile.file             the same
    s3.ca                                                    PEM file of authorities, on every machine; not the JVM's
    s3.connectTimeout   fs.s3a.connection.establish.timeout  5s
    s3.readTimeout      fs.s3a.connection.timeout            30s without a byte
    s3.connectionsMax   fs.s3a.connection.maximum            32, of each process
    s3.attemptsMax      (attempts.maximum + 1) x (retry.limit + 1), both under fs.s3a., 5 and 7 where one is not set; 6
    s3.retryInterval    fs.s3a.retry.interval                50ms; the first wait, which doubles up to 5 s
    s3.sse              fs.s3a.encryption.algorithm          of what a read puts: AES256, or aws:kms (s3a's SSE-KMS)
    s3.sseKmsKeyId      fs.s3a.encryption.key
                        fs.s3a.server-side-encryption-algorithm and .server-side-encryption.key, the old names

By other encryptions of s3a (SSE-C, CSE, DSSE-KMS) no broker writes: reads pass, what a read would put is refused. The
storage class does not carry over: what a read writes holds no history.

Other options under fs.s3a. (proxies, limits of throttled requests, upload sizes) are ignored.

Secrets travel inside the pickled data source to the tasks; they are not in `repr`, plans or errors. Better name none
and let the executors find their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypedDict
from urllib.parse import urlsplit

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.access.hadoop_credentials import (
    HADOOP_PROFILE_PROVIDER,
    SESSION_KEYS,
    class_names,
    kinds_of_providers,
)
from thermocline.spark.access.hadoop_values import count, duration_ms
from thermocline.tiered.s3 import CREDENTIAL_KINDS, SSE_KMS
from thermocline.tiered.wrappers import RetryPolicy

HADOOP_PREFIX = "fs.s3a."
BUCKET_PREFIX = "fs.s3a.bucket."
NAMES = frozenset(
    {
        *("s3.endpoint", "s3.tls", "s3.region", "s3.pathstyle", "s3.accesskey", "s3.secretkey", "s3.sessiontoken"),
        *("s3.credentials", "s3.profile", "s3.credentialsfile", "s3.ca", "s3.sse", "s3.ssekmskeyid"),
        *("s3.connecttimeout", "s3.readtimeout", "s3.connectionsmax", "s3.attemptsmax", "s3.retryinterval"),
    }
)
# Regions that mean "find out yourself" to Hadoop; no region is the same here.
_REGION_AUTOMATIC = frozenset({"", "auto", "ec2", "sdk", "null"})
_SSE_OF_HADOOP = {"AES256": "AES256", "SSE-KMS": SSE_KMS}
CONNECTIONS = f"s3.connectionsMax or {HADOOP_PREFIX}connection.maximum"
RETRY_INTERVAL = f"s3.retryInterval or {HADOOP_PREFIX}retry.interval"
SSE_NAMES = ("encryption.algorithm", "server-side-encryption-algorithm")
SSE_KEY_NAMES = ("encryption.key", "server-side-encryption.key")
_TRUTH = {"true": True, "false": False}
_SDK_RETRIES, _S3A_RETRIES = 5, 7
"""The defaults of s3a."""


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

        def find(name: str, *hadoop_names: str) -> str | None:
            own = [name] if name else []
            of_bucket = [f"{BUCKET_PREFIX}{bucket}.{hadoop_name}" for hadoop_name in hadoop_names]
            for key in (*own, *of_bucket, *(f"{HADOOP_PREFIX}{hadoop_name}" for hadoop_name in hadoop_names)):
                value = values.get(key.lower(), "").strip()
                if value:
                    return value
            return None

        endpoint = find("s3.endpoint", "endpoint")
        if endpoint is not None:
            endpoint = _endpoint_url(endpoint, tls=_truth(find, "s3.tls", "connection.ssl.enabled") is not False)
        region = find("s3.region", "endpoint.region")
        sse, sse_unwritten = find("s3.sse", *SSE_NAMES), None
        if sse is not None and find("s3.sse") is None:
            sse, sse_unwritten = _SSE_OF_HADOOP.get(sse.upper()), sse
        connections_max = find("s3.connectionsMax", "connection.maximum")
        return BucketOptions(
            endpoint=endpoint,
            region=None if region is None or region.lower() in _REGION_AUTOMATIC else region,
            path_style=_truth(find, "s3.pathStyle", "path.style.access"),
            **_credentials(find, bucket),
            ca=find("s3.ca"),
            sse=sse,
            sse_kms_key_id=find("s3.sseKmsKeyId", *SSE_KEY_NAMES) if sse == SSE_KMS else None,
            sse_unwritten=sse_unwritten if sse is None else None,
            connect_timeout_s=_seconds(find, "s3.connectTimeout", "connection.establish.timeout"),
            read_timeout_s=_seconds(find, "s3.readTimeout", "connection.timeout"),
            connections_max=None if connections_max is None else count(CONNECTIONS, connections_max, least=1),
            retry=_retry_policy(find),
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
    sse_unwritten: str | None = None
    """An encryption of s3a by which nothing can be put here."""
    credentials: tuple[str, ...] | None = None
    profile: str | None = None
    credentials_file: str | None = None
    connect_timeout_s: float | None = None
    read_timeout_s: float | None = None
    connections_max: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class Find(Protocol):
    """Looks up an option of one bucket by its own name ("" for none) and Hadoop's, in the order of the header."""

    def __call__(self, name: str, *hadoop_names: str) -> str | None: ...


class Credentials(TypedDict, total=False):
    """The credential fields of BucketOptions."""

    access_key: str | None
    secret_key: str | None
    session_token: str | None
    credentials: tuple[str, ...] | None
    profile: str | None
    credentials_file: str | None


def is_store_option(name: str) -> bool:
    """Whether an option of a read, in lower case, is a store option. Every other `fs.s3a.*` option is accepted too."""
    return name in NAMES or name.startswith(HADOOP_PREFIX)


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


def _credentials(find: Find, bucket: str) -> Credentials:
    """Keys, and what is asked besides or instead of them."""
    access_key = find("s3.accessKey", "access.key")
    secret_key = find("s3.secretKey", "secret.key")
    session_token = find("s3.sessionToken", "session.token")
    if (access_key is None) != (secret_key is None):
        raise InvalidRequestError("an access key and a secret key go together", bucket=bucket)
    has_keys = access_key is not None
    found = Credentials(access_key=access_key, secret_key=secret_key, session_token=session_token)
    own, providers = find("s3.credentials"), find("", "aws.credentials.provider")
    if own is not None:
        named = tuple(dict.fromkeys(class_names(own.lower())))
        if not set(named) <= set(CREDENTIAL_KINDS):
            raise InvalidRequestError(
                f"a source of credentials is one of {', '.join(CREDENTIAL_KINDS)}", option="s3.credentials", value=own
            )
        kinds = tuple(kind for kind in named if has_keys or kind != "keys")
    elif providers is not None and find("s3.accessKey") is None:
        named = kinds_of_providers(providers)
        able = {SESSION_KEYS} if has_keys and session_token is not None else set()
        able |= {"keys"} if has_keys else set()
        kinds = tuple(kind for kind in named if kind in able or kind not in (SESSION_KEYS, "keys"))
        if "keys" in kinds and SESSION_KEYS not in kinds[: kinds.index("keys")]:
            found["session_token"] = None  # SimpleAWSCredentialsProvider does not look at it
        kinds = tuple(dict.fromkeys("keys" if kind == SESSION_KEYS else kind for kind in kinds))
    else:
        return found
    if not kinds:
        raise InvalidRequestError(
            "the sources of credentials that are named are keys, and there are none for this bucket",
            bucket=bucket,
            named=own or providers,
        )
    if kinds[0] == "keys":
        return found
    found["credentials"] = kinds
    if "profile" in kinds:
        by_hadoop = own is None and HADOOP_PROFILE_PROVIDER in class_names(providers or "")
        found["profile"] = find("s3.profile", *(("auth.profile.name",) if by_hadoop else ()))
        found["credentials_file"] = find("s3.credentialsFile", *(("auth.profile.file",) if by_hadoop else ()))
    return found


def _retry_policy(find: Find) -> RetryPolicy:
    """How often a request is sent, and how long is waited before it is sent again."""
    policy = RetryPolicy()
    attempts = find("s3.attemptsMax")
    sdk_retries, s3a_retries = find("", "attempts.maximum"), find("", "retry.limit")
    if attempts is not None:
        policy = replace(policy, attempts_max=count("s3.attemptsMax", attempts, least=1))
    elif sdk_retries is not None or s3a_retries is not None:
        inner = _SDK_RETRIES if sdk_retries is None else count("fs.s3a.attempts.maximum", sdk_retries)
        outer = _S3A_RETRIES if s3a_retries is None else count("fs.s3a.retry.limit", s3a_retries)
        policy = replace(policy, attempts_max=(inner + 1) * (outer + 1))
    interval = find("s3.retryInterval", "retry.interval")
    if interval is not None:
        first_ms = math.ceil(duration_ms(RETRY_INTERVAL, interval, zero=True))
        policy = replace(policy, first_delay_ms=first_ms, delay_ms_max=max(first_ms, policy.delay_ms_max))
    return policy


def _truth(find: Find, name: str, hadoop_name: str) -> bool | None:
    """True or false; None without the option, or for a text that Hadoop would replace by its default."""
    own, of_hadoop = find(name), find("", hadoop_name)
    if own is not None and own.lower() not in _TRUTH:
        raise InvalidRequestError(f"{own!r} is neither true nor false", option=name)
    value = own if own is not None else of_hadoop
    return None if value is None else _TRUTH.get(value.lower())


def _seconds(find: Find, name: str, hadoop_name: str) -> float | None:
    value = find(name, hadoop_name)
    return None if value is None else duration_ms(f"{name} or {HADOOP_PREFIX}{hadoop_name}", value) / 1000


def _endpoint_url(endpoint: str, *, tls: bool) -> str:
    url = endpoint if "://" in endpoint else f"{'https' if tls else 'http'}://{endpoint}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequestError(f"{endpoint!r} is no endpoint; write http://host:9000", option="s3.endpoint")
    return url
