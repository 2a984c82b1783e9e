"""Requests that the meter counts for an S3 store, and requests that a proxy before the server has seen."""

from __future__ import annotations

from random import Random

import pytest
from aiohttp import web

from tests.fixtures_s3 import S3Bucket
from tests.s3_proxy import Forward, ProxiedRequest, S3Proxy, s3_error
from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.cost.cost_meter import CostMeter, Purpose
from thermocline.tiered.cost.request_kind import requests_by_kind
from thermocline.tiered.objects.errors import AlreadyExistsError
from thermocline.tiered.s3 import S3ObjectStore, S3Options
from thermocline.tiered.s3.s3_options import MIB
from thermocline.tiered.s3.sent_requests import verb_of
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.stores.object_store_url import put_requests_of
from thermocline.tiered.wrappers import MeteringObjectStore, RetryingObjectStore, RetryPolicy, Verb

KEYS = BrokerKeys.of(cluster="C", broker_name="b")
PART_BYTES = 5 * MIB
AT_ONCE = RetryPolicy(attempts_max=4, first_delay_ms=0, delay_ms_max=0)
KIND_OF_METHOD = {"PUT": "put", "POST": "put", "GET": "get", "HEAD": "get", "DELETE": "delete"}


class Trouble:
    """Answers 503 to a part of an upload and to a whole one, without carrying them out."""

    def __init__(self) -> None:
        self.count = 0
        self.answered = 0

    async def rule(self, request: ProxiedRequest, forward: Forward) -> web.Response:
        if request.method == "PUT":
            self.count += 1
            if self.count in (2, 8):
                self.answered += 1
                return s3_error(503, "SlowDown")
        return await forward()


async def opened(bucket: S3Bucket, meter: CostMeter) -> RetryingObjectStore:
    options = S3Options(
        bucket=bucket.name,
        prefix="history",
        endpoint=bucket.endpoint,
        region=bucket.region,
        access_key=bucket.access_key,
        secret_key=bucket.secret_key,
        put_bytes_max=PART_BYTES,
        part_bytes=PART_BYTES,
    )
    metered = MeteringObjectStore(await S3ObjectStore.open(options), meter.totals, meter.accounts_of)
    return RetryingObjectStore(metered, policy=AT_ONCE, random=Random(1))


def kind_of_seen(method: str, query: str) -> str:
    """Name the kind as the bill does: the query marks listings and deletes."""
    if method == "POST" and query.startswith("delete"):
        return "delete"
    if method == "GET" and ("list-type" in query or query.startswith(("uploads", "prefix"))):
        return "list"
    return KIND_OF_METHOD[method]


def counted_and_seen(meter: CostMeter, proxy: S3Proxy) -> tuple[dict[str, int], dict[str, int]]:
    counted = {kind.value: count for kind, count in requests_by_kind(meter.totals.requests).items()}
    seen = dict.fromkeys(counted, 0)
    for method, _, query in proxy.seen:
        seen[kind_of_seen(method, query)] += 1
    return counted, seen


@pytest.mark.s3
async def test_the_counted_requests_equal_those_seen_by_a_proxy(any_s3_bucket: S3Bucket) -> None:
    """Uploads in parts, repetitions, bulk deletes of more than 1000 keys, pages of listings, unfinished uploads."""
    trouble = Trouble()
    meter = CostMeter(KEYS, lambda: 0)
    async with S3Proxy(any_s3_bucket, rule=trouble.rule) as proxy:
        store = await opened(proxy.bucket, meter)
        pack = f"{KEYS.packs_prefix}forever/0000000001-0000000001.pack"
        await store.put(pack, bytes(2 * PART_BYTES + 1))
        await store.put(f"{KEYS.topics_prefix}orders/0000000001-0000000002.log", b"12345")
        await store.create_if_absent(KEYS.ledger_entry(1), b"1")
        with pytest.raises(AlreadyExistsError):
            await store.create_if_absent(KEYS.ledger_entry(1), b"2")
        with pytest.raises(ObjectNotFoundError):
            await store.get(KEYS.head_hint)
        assert len(await store.get_range(pack, start=3, end=9)) == 6
        await store.get_suffix(pack, size_bytes=9)
        await store.head(pack)
        assert [info.key async for info in store.list(KEYS.packs_prefix)] == [pack]
        deleted = [f"{KEYS.topics_prefix}a&b/{number:010}-0000000001.log" for number in range(2_500)]
        await store.delete_many(deleted)
        await store.delete(pack)
        await store.remove_incomplete(f"{KEYS.root}/")
        await store.close()
    assert trouble.answered == 2
    counted, seen = counted_and_seen(meter, proxy)
    assert counted == seen
    requests = meter.by_purpose[Purpose.PACKS].requests
    assert requests[Verb.PUT] >= 1 + 3 + 1, "begun, three parts, completed; repeated as a whole when one part fails"
    assert (requests[Verb.GET_RANGE], requests[Verb.GET_SUFFIX], requests[Verb.HEAD], requests[Verb.LIST]) == (1,) * 4
    assert meter.by_topic["a&b"].requests == {Verb.DELETE_MANY: 3}
    ledger = meter.by_purpose[Purpose.LEDGER].requests
    assert ledger[Verb.CREATE_IF_ABSENT] >= 2
    assert ledger[Verb.GET] == 1
    assert meter.totals.request_count == sum(each.request_count for each in meter.by_purpose.values())


@pytest.mark.parametrize(
    ("operation", "headers", "verb"),
    [
        ("GetObject", {}, Verb.GET),
        ("GetObject", {"Range": "bytes=0-9"}, Verb.GET_RANGE),
        ("GetObject", {"Range": b"bytes=-9"}, Verb.GET_SUFFIX),
        ("PutObject", {}, Verb.PUT),
        ("PutObject", {"If-None-Match": b"*"}, Verb.CREATE_IF_ABSENT),
        ("UploadPart", {}, Verb.PUT),
        ("AbortMultipartUpload", {}, Verb.DELETE),
        ("ListMultipartUploads", {}, Verb.REMOVE_INCOMPLETE),
        ("HeadBucket", {}, Verb.GET),
    ],
)
def test_requests_count_for_the_verb_that_they_are_sent_for(
    operation: str, headers: dict[str, str | bytes], verb: Verb
) -> None:
    assert verb_of(operation, headers) is verb


def test_a_pack_of_the_default_size_is_one_request_however_little_it_compresses() -> None:
    put_requests = put_requests_of("s3://bucket/prefix")
    assert put_requests(256 * MIB * 1.2) == 1
    assert put_requests(321 * MIB) == 11 + 2
    assert put_requests_of("file:///somewhere")(1 << 40) == 1
