"""open_object_store: from a URL to an object store, metered, limited and retried.

    file:///absolute/directory
    s3://bucket/prefix?endpoint=https://host:port&region=us-east-1&ca=/etc/ssl/private-ca.pem&storage_class=STANDARD_IA
    memory://name

Everything behind `?` is optional: the fields of S3Options by their names. A `+` is a plus and a `/` a slash, as keys
hold them; `%`, `&` and `#` are written `%25`, `%26` and `%23`. Without keys the environment's credentials are used.
`s3a://` means `s3://`. Keys in a URL are for tests: they end up in process lists, but in no log and no error
(`masked_url.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.store.files import Disk, Readers, RealDisk, apply_modes, modes_like
from thermocline.tiered.objects import SHOWN_OPTIONS, ObjectStore, is_masked, masked_url
from thermocline.tiered.s3 import S3Options
from thermocline.tiered.stores.file import PARTIAL_FOLDER, FileObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import (
    AccountsOf,
    MeteringObjectStore,
    RetryingObjectStore,
    RetryPolicy,
    Sleep,
    StoreCounters,
    StoreRates,
    ThrottlingObjectStore,
    monotonic_ms,
)

_SECRET_OPTIONS = frozenset({"access_key", "secret_key", "session_token"})
_TEXT_OPTIONS = (SHOWN_OPTIONS | _SECRET_OPTIONS) - {"path_style"}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class DirectoryAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Who may read what a writer puts into a directory; `trees`: its folders there, which are given that access too."""

    readers: Readers
    trees: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreOptions:
    """What stands above and below a store that is opened by URL. `rates`: limits that each attempt keeps to."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    counters: StoreCounters = field(default_factory=StoreCounters)
    accounts_of: AccountsOf | None = None
    random: Random = field(default_factory=SystemRandom)
    sleep: Sleep = asyncio.sleep
    rates: StoreRates | None = None
    disk: Disk | None = None
    """Where a directory is; None: this machine's, with access as `directory_access` or the directory says."""
    directory_access: DirectoryAccess | None = None
    connections_max: int = 32


async def open_object_store(url: str, options: ObjectStoreOptions | None = None) -> ObjectStore:
    """Open the store of `url`; sends no request. Close it afterwards.

    Raises:
        InvalidRequestError: It is no URL of a store.
    """
    chosen = options if options is not None else ObjectStoreOptions()
    store = await _open_provider(url, chosen)
    limited: ObjectStore = MeteringObjectStore(store, chosen.counters, chosen.accounts_of)
    if chosen.rates is not None:
        limited = ThrottlingObjectStore(limited, rates=chosen.rates, clock_ms=monotonic_ms, sleep=chosen.sleep)
    return RetryingObjectStore(limited, policy=chosen.retry, random=chosen.random, sleep=chosen.sleep)


def parse_s3_url(url: str) -> S3Options:
    """The options in an `s3://` or `s3a://` URL. InvalidRequestError when it is none."""
    parts = _split(url)
    if parts.scheme not in ("s3", "s3a") or not parts.netloc:
        raise InvalidRequestError("an S3 URL is s3://bucket/prefix", url=masked_url(url))
    if is_masked(url):
        raise InvalidRequestError("this URL was shown with its keys masked, and opens nothing", url=masked_url(url))
    if parts.fragment:
        raise InvalidRequestError("a # in the URL of a store is written %23", url=masked_url(url))
    given: dict[str, Any] = _options_in(parts.query)
    path_style = given.pop("path_style", None)
    if given.keys() - _TEXT_OPTIONS or path_style not in (None, *_BOOLEANS):
        raise InvalidRequestError("unknown option in an S3 URL", url=masked_url(url))
    return S3Options(
        bucket=parts.netloc,
        prefix=unquote(parts.path).strip("/"),
        **given,
        path_style=None if path_style is None else _BOOLEANS[path_style],
    )


def check_store_url(url: str) -> None:
    """Whether a store can be opened by this URL, as far as its text tells.

    Raises:
        InvalidRequestError: It is no URL of a store.
    """
    parts = _split(url)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if is_file and not {"?", "#"}.isdisjoint(url):
        raise InvalidRequestError(
            "this URL ends with its path; a ? or # in that is written %3F or %23", url=masked_url(url)
        )
    if is_file or (parts.scheme == "memory" and parts.netloc):
        return
    if not is_s3_url(url):
        kinds = "file:///directory, s3://bucket/prefix or memory://name"
        raise InvalidRequestError(f"an object store is {kinds}", url=masked_url(url))
    parse_s3_url(url)


def put_requests_of(url: str) -> Callable[[float], int]:
    """How many requests the store of `url` takes to put an object of so many bytes."""
    if is_s3_url(url):
        return parse_s3_url(url).put_requests
    return lambda size_bytes: 1


def is_s3_url(url: str) -> bool:
    """Whether the URL names an S3 bucket."""
    return urlsplit(url).scheme in ("s3", "s3a")


def is_directory_url(url: str) -> bool:
    """Whether it is a directory, on whatever file system."""
    return urlsplit(url).scheme == "file"


def _options_in(query: str) -> dict[str, str]:
    """Each option that has a value. Not as in a form that a browser sends, where a `+` is a space: keys of services
    hold pluses."""
    pairs = (option.partition("=") for option in query.split("&"))
    return {unquote(name): unquote(value) for name, _, value in pairs if value}


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidRequestError(f"this is no URL ({error})", url=masked_url(url)) from None


async def _open_directory(root: str, access: DirectoryAccess | None) -> Disk:
    """A disk whose new files the readers in `access` may read; without it, the users that may read the directory."""
    if access is None:
        return RealDisk(await asyncio.to_thread(modes_like, root))
    modes = access.readers.modes
    await asyncio.to_thread(apply_modes, root, (*access.trees, PARTIAL_FOLDER), modes)
    return RealDisk(modes)


async def _open_provider(url: str, options: ObjectStoreOptions) -> ObjectStore:
    check_store_url(url)
    parts = urlsplit(url)
    if parts.scheme == "file":
        root = unquote(parts.path)
        return FileObjectStore(root, disk=options.disk or await _open_directory(root, options.directory_access))
    if parts.scheme == "memory":
        return MemoryObjectStore(parts.netloc + parts.path)
    from thermocline.tiered.s3 import S3ObjectStore

    return await S3ObjectStore.open(replace(parse_s3_url(url), connections_max=options.connections_max))
