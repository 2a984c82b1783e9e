"""409 ConditionalRequestConflict, which AWS answers to racing conditional writes: none has won, the client retries.

No server that runs here ever answers it, so a proxy before one does.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from aiohttp import web

from tests.fixtures_s3 import S3Bucket
from tests.s3_proxy import Forward, ProxiedRequest, S3Proxy, s3_error
from tests.tiered.ledger_data import KEYS, commit_segment, make_entry, open_writer
from thermocline.remoting.errors import FencedError, ObjectStoreUnavailableError
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.fencing_probe import Races, probe_conditional
from thermocline.tiered.doctor.finding import Verdict
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.errors import AlreadyExistsError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions, open_object_store
from thermocline.tiered.wrappers import RetryPolicy

pytestmark = pytest.mark.s3

AT_ONCE = RetryPolicy(attempts_max=4, first_delay_ms=0, delay_ms_max=0)


class Conflicts:
    """Answers 409 to the next `count` conditional puts of keys with `within`, without carrying them out."""

    def __init__(self, count: int = 0, *, within: str = "") -> None:
        self.count = count
        self.within = within
        self.answered = 0

    async def rule(self, request: ProxiedRequest, forward: Forward) -> web.Response:
        is_meant = request.headers.get("If-None-Match") == "*" and self.within in request.path
        if request.method == "PUT" and is_meant and self.answered < self.count:
            self.answered += 1
            return s3_error(409, "ConditionalRequestConflict")
        return await forward()


async def store_behind(proxy: S3Proxy) -> ObjectStore:
    return await open_object_store(proxy.bucket.cold_url, ObjectStoreOptions(retry=AT_ONCE))


async def test_a_conflict_is_retried_until_one_writer_has_won(s3_bucket: S3Bucket) -> None:
    conflicts = Conflicts(count=2)
    async with S3Proxy(s3_bucket, rule=conflicts.rule) as proxy:
        store = await store_behind(proxy)
        await store.create_if_absent("k", b"first")
        assert conflicts.answered == 2
        conflicts.count = 4
        with pytest.raises(AlreadyExistsError):
            await store.create_if_absent("k", b"second")
        assert conflicts.answered == 4
        assert await store.get("k") == b"first"
        await store.close()


async def test_a_conflict_without_end_is_no_answer(s3_bucket: S3Bucket) -> None:
    conflicts = Conflicts(count=1_000)
    async with S3Proxy(s3_bucket, rule=conflicts.rule) as proxy:
        store = await store_behind(proxy)
        with pytest.raises(ObjectStoreUnavailableError, match="ConditionalRequestConflict"):
            await store.create_if_absent("k", b"first")
        assert conflicts.answered == AT_ONCE.attempts_max
        await store.close()


async def test_a_commit_goes_through_conflicts_once(s3_bucket: S3Bucket) -> None:
    """Also when they outlast the attempts: its outcome is unknown then, and settling carries the same entry through."""
    conflicts = Conflicts()
    async with S3Proxy(s3_bucket, rule=conflicts.rule) as proxy:
        store = await store_behind(proxy)
        writer = await open_writer(store)
        conflicts.count = 3
        await commit_segment(writer)
        assert conflicts.answered == 3
        conflicts.count += AT_ONCE.attempts_max
        with pytest.raises(ObjectStoreUnavailableError):
            await commit_segment(writer, start=10)
        assert (await writer.settle()).version == 3
        catalog = await open_catalog(store, KEYS)
        assert catalog == writer.catalog
        assert [segment.runs[0].start_offset for segment in catalog.topics["orders"].segments] == [0, 10]
        await store.close()


async def test_racing_writers_that_get_conflicts_do_not_both_commit(s3_bucket: S3Bucket) -> None:
    random = Random(7)

    async def rule(request: ProxiedRequest, forward: Forward) -> web.Response:
        if request.method == "PUT" and request.headers.get("If-None-Match") == "*" and random.random() < 0.5:
            return s3_error(409, "ConditionalRequestConflict")
        return await forward()

    async with S3Proxy(s3_bucket, rule=rule) as proxy:

        async def live(seed: int) -> int:
            policy = RetryPolicy(attempts_max=30, first_delay_ms=0, delay_ms_max=0)
            store = await open_object_store(proxy.bucket.cold_url, ObjectStoreOptions(retry=policy))
            committed = 0
            try:
                writer = await open_writer(store, seed=seed, checkpoint_interval=2)
                for number in range(3):
                    entry = make_entry(writer.next_segment_id(), topic=f"topic-{seed}", start=number * 10)
                    await writer.commit(LedgerChanges(segments_in=(entry,)))
                    committed += 1
            except FencedError:
                pass
            finally:
                await store.close()
            return committed

        counts = await asyncio.gather(*(live(seed) for seed in range(1, 4)))
        store = await store_behind(proxy)
        catalog = await open_catalog(store, KEYS)
        await store.close()
    found = {topic: len(entry.segments) for topic, entry in catalog.topics.items()}
    assert found == {f"topic-{seed}": count for seed, count in enumerate(counts, start=1) if count}
    assert catalog.epoch == 3


async def test_the_doctor_recognises_conflicts(s3_bucket: S3Bucket) -> None:
    conflicts = Conflicts(count=40, within="race-")
    async with S3Proxy(s3_bucket, rule=conflicts.rule) as proxy:
        store = await store_behind(proxy)
        bench = Bench(store, parent="doctor/", random=Random(1))
        finding = await probe_conditional(bench, Races(small_rounds=4, large_rounds=0))
        await bench.clear()
        await store.close()
    assert conflicts.answered == 40
    assert finding.verdict is Verdict.OK
