"""Where a cold tier is stored: URLs as people write them for Spark, and the brokers that are found there.

    s3a://bucket/prefix   s3://bucket/prefix?endpoint=http://host:9000   file:///directory

A URL may name the prefix of all clusters, one cluster (prefix/cluster), or one broker (prefix/cluster/broker).
`?endpoint=` and the like are those of a broker's own cold URL and count as the options s3.endpoint and so on would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from random import SystemRandom
from urllib.parse import urlsplit, urlunsplit

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.access.request_counts import counting_requests
from thermocline.spark.access.store_options import BucketOptions
from thermocline.spark.access.writes_refused import WritesRefused
from thermocline.tiered.ledger import find_entry_or_hint
from thermocline.tiered.objects import ObjectStore, masked_url
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.stores import open_object_store, parse_s3_url
from thermocline.tiered.wrappers import RetryingObjectStore

S3_SCHEMES = ("s3a", "s3")
# How many folders that are no brokers are stepped over. A URL with more and no broker is taken for a wrong one; with
# more beside brokers it is refused, as a read without some brokers would look whole.
STRANGERS_MAX = 100
_LAST_CHARACTER = "\U0010ffff"


def split_url(url: str) -> tuple[str, str]:
    """Scheme (`s3` for all of S3's) and bucket ("" for other schemes); InvalidRequestError for what is no such URL."""
    parts = urlsplit(url)
    if parts.scheme in S3_SCHEMES:
        if not parts.netloc:
            raise InvalidRequestError("the URL names no bucket: s3a://bucket/prefix", url=masked_url(url))
        return "s3", parts.netloc
    if parts.scheme in ("file", "memory"):
        return parts.scheme, ""
    raise InvalidRequestError("a cold tier is at s3a://bucket/prefix or file:///directory", url=masked_url(url))


def possible_prefixes(url: str) -> Iterator[tuple[str, str]]:
    """What `url` may mean: URL of a prefix, and what the roots of the brokers in it start with."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    under = ""
    for _ in range(3):
        yield urlunsplit(parts._replace(path=path)), under
        path, slash, name = path.rpartition("/")
        if not slash or not name or (not path and not parts.netloc):
            return  # of a directory there is none above the root
        under = f"{name}/{under}"


async def broker_roots(store: ObjectStore, under: str) -> list[str]:
    """The roots (cluster/broker) with a ledger whose names start with `under`: "", "cluster/" or "cluster/broker/".

    About two list requests for each, none when `under` is a whole root.

    Raises:
        InvalidRequestError: There are brokers, and so many other folders that some brokers may not be found.
    """
    if under.count("/") == 2:
        root = under.rstrip("/")
        return [root] if await find_entry_or_hint(store, BrokerKeys(root)) else []
    roots: list[str] = []
    strangers_count = 0
    start_after = ""
    while True:
        first = ""
        async for info in store.list(under, start_after=start_after):
            first = info.key
            break
        if not first:
            break
        root = "/".join(first.split("/")[:2])
        if root != first and await find_entry_or_hint(store, BrokerKeys(root)):
            roots.append(root)
        else:
            strangers_count += 1
        if strangers_count > STRANGERS_MAX:
            if roots:
                raise InvalidRequestError(
                    f"there are more than {STRANGERS_MAX} other folders beside the brokers, so that some brokers may"
                    " not be found; name one cluster: URL/cluster",
                    found=" ".join(roots),
                )
            break
        start_after = first if root == first else f"{root}/{_LAST_CHARACTER}"
    return roots


async def open_cold_store(url: str, options: BucketOptions) -> ObjectStore:
    """Open the store at the URL of a prefix, with retries, on the running loop. Sends no request.

    Raises:
        InvalidRequestError: The URL is none of a cold tier.
    """
    if split_url(url)[0] != "s3":
        return await open_object_store(url)
    from thermocline.tiered.s3 import S3ObjectStore

    given = {name: value for name, value in asdict(options).items() if value is not None}
    policy, sse_unwritten = options.retry, given.pop("sse_unwritten", None)
    del given["retry"]
    if "sse" in given:
        given.setdefault("sse_kms_key_id", None)  # the URL's key is one for the URL's sse
    from_url = parse_s3_url(url)
    store = await S3ObjectStore.open(replace(from_url, **given))
    counted: ObjectStore = counting_requests(store)
    if sse_unwritten is not None and from_url.sse is None:
        counted = WritesRefused(counted, algorithm=sse_unwritten)
    return RetryingObjectStore(counted, policy=policy, random=SystemRandom())
