"""Each way in which a store fails two racing writers is seen, and none that does not is blamed.

Covers `tiered/doctor/bench.py`, `tiered/doctor/fencing_check.py`, `tiered/doctor/finding.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.tiered.ledger_data import KEYS
from tests.tiered.ledger_races import IgnoringStore
from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.doctor.bench import STALE_MS, Bench
from thermocline.tiered.doctor.fencing_check import DIRECTORY_RACES, check_fencing
from thermocline.tiered.doctor.fencing_probe import Races, probe_conditional, probe_listings, probe_read_back
from thermocline.tiered.doctor.finding import Verdict
from thermocline.tiered.ledger.fencing import FencingMode
from thermocline.tiered.objects.errors import AlreadyExistsError, ObjectStoreRefusedError, UnfitStoreError
from thermocline.tiered.objects.object_store import Data, ObjectInfo, ObjectStore, ObjectSuffix
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import FaultInjectingObjectStore, MeteringObjectStore, RetryingObjectStore, RetryPolicy
from thermocline.tiered.wrappers.fault_injection import unreliable
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

RACES = Races(small_rounds=4, large_rounds=1, large_bytes=10_000, listing_rounds=2)


class LooksFirst(WrappingObjectStore):
    """As s3s-fs: looks whether the key is there, and writes it afterwards."""

    async def create_if_absent(self, key: str, data: Data) -> None:
        try:
            await self._inner.head(key)
        except ObjectNotFoundError:
            await self._inner.put(key, data)
        else:
            raise AlreadyExistsError(key=key)


class LastWins(WrappingObjectStore):
    """Tells the first that it won, and keeps the bytes of the last."""

    async def create_if_absent(self, key: str, data: Data) -> None:
        try:
            await self._inner.create_if_absent(key, data)
        except AlreadyExistsError:
            if not key.endswith("one-at-a-time"):
                await self._inner.put(key, data)
            raise


class Refuses(WrappingObjectStore):
    """Does not know the header."""

    status = 501

    async def create_if_absent(self, key: str, data: Data) -> None:
        raise ObjectStoreRefusedError("the object store refuses", key=key, status=self.status)


class Denies(Refuses):
    status = 403


class LaggingListings(WrappingObjectStore):
    """Shows in a listing what was there a moment ago."""

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        old = [info async for info in self._inner.list(prefix, start_after=start_after)]
        for info in old[: len(old) // 2]:
            yield info


class LaggingReads(WrappingObjectStore):
    """Remembers what it has answered."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._cached: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes:
        if key not in self._cached:
            self._cached[key] = await self._inner.get(key)
        return self._cached[key]


def bench_on(store: ObjectStore) -> Bench:
    return Bench(store, parent="doctor/", random=Random(1))


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        (IgnoringStore, "accepts If-None-Match and ignores it"),
        (LooksFirst, "one at a time, but"),
        (LastWins, "keeps other bytes"),
        (Refuses, "refuses conditional creates"),
    ],
)
async def test_a_store_that_does_not_arbitrate(wrap: type[WrappingObjectStore], says: str) -> None:
    finding = await probe_conditional(bench_on(wrap(MemoryObjectStore())), RACES)
    assert finding.verdict is Verdict.DEFECT
    assert says in finding.text
    assert finding.rules_out == {FencingMode.CONDITIONAL}


async def test_a_good_store_passes() -> None:
    bench = bench_on(MemoryObjectStore())
    for finding in (
        await probe_conditional(bench, RACES),
        await probe_listings(bench, RACES),
        await probe_read_back(bench, count=2),
    ):
        assert finding.verdict is Verdict.OK, finding


async def test_lost_answers_are_no_second_winners() -> None:
    async def no_sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    for seed in range(20):
        faulty = FaultInjectingObjectStore(MemoryObjectStore(), unreliable(Random(seed), probability=0.3))
        policy = RetryPolicy(attempts_max=30)
        store = RetryingObjectStore(faulty, policy=policy, random=Random(seed), sleep=no_sleep)
        finding = await probe_conditional(bench_on(store), RACES)
        assert finding.verdict is Verdict.OK, (seed, finding)


async def test_a_denied_request_gives_no_verdict() -> None:
    with pytest.raises(ObjectStoreUnavailableError):
        await probe_conditional(bench_on(Denies(MemoryObjectStore())), RACES)


async def test_listings_that_lag_rule_out_ballots() -> None:
    finding = await probe_listings(bench_on(LaggingListings(MemoryObjectStore())), RACES)
    assert finding.verdict is Verdict.DEFECT
    assert finding.rules_out == {FencingMode.BALLOTS}


async def test_reads_that_lag_rule_out_everything() -> None:
    finding = await probe_read_back(bench_on(LaggingReads(MemoryObjectStore())), count=2)
    assert finding.rules_out == set(FencingMode)


async def test_the_error_of_an_unfit_mode_names_the_fitting_one() -> None:
    memory = MemoryObjectStore()
    with pytest.raises(UnfitStoreError, match=r"ignores it.*: set coldFencing=ballots, which it is fit for$"):
        await check_fencing(IgnoringStore(memory), KEYS, mode=FencingMode.CONDITIONAL, random=Random(1))
    await check_fencing(IgnoringStore(memory), KEYS, mode=FencingMode.BALLOTS, random=Random(1))
    assert memory.objects == {}


async def test_the_error_of_an_unfit_store_suggests_another_one() -> None:
    store = LaggingListings(IgnoringStore(MemoryObjectStore()))
    for mode in FencingMode:
        with pytest.raises(UnfitStoreError, match="use another store"):
            await check_fencing(store, KEYS, mode=mode, random=Random(1))


@pytest.mark.parametrize("mode", FencingMode)
async def test_requests_of_a_start_are_bounded(mode: FencingMode) -> None:
    memory = MemoryObjectStore()
    store = MeteringObjectStore(memory)
    await check_fencing(store, KEYS, mode=mode, random=Random(1))
    assert store.counters.request_count <= 140
    assert memory.objects == {}


async def test_a_store_that_arbitrates_and_cannot_be_read_is_refused() -> None:
    class NoSuffixes(WrappingObjectStore):
        async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
            raise ObjectStoreUnavailableError("try again", key=key)

    class WrongRanges(WrappingObjectStore):
        async def get_range(self, key: str, *, start: int, end: int) -> bytes:
            return await self._inner.get_range(key, start=start, end=end + 1)

    class Away(NoSuffixes):
        async def get(self, key: str) -> bytes:
            if key.endswith("ranges"):
                raise ObjectStoreUnavailableError("away", key=key)
            return await self._inner.get(key)

    for mode in FencingMode:
        with pytest.raises(UnfitStoreError, match=r"is unfit.*no answer to some range.*: use another store$"):
            await check_fencing(NoSuffixes(MemoryObjectStore()), KEYS, mode=mode, random=Random(1))
        ignoring = NoSuffixes(IgnoringStore(MemoryObjectStore()))
        says = r"let two brokers commit.*" if mode is FencingMode.CONDITIONAL else r"is unfit.*"
        with pytest.raises(UnfitStoreError, match=rf"{says}: use another store$"):
            await check_fencing(ignoring, KEYS, mode=mode, random=Random(1))
        with pytest.raises(UnfitStoreError, match=r"is unfit.*wrong answers for.*: use another store$"):
            await check_fencing(WrongRanges(MemoryObjectStore()), KEYS, mode=mode, random=Random(1))
        with pytest.raises(ObjectStoreUnavailableError, match="away"):  # no verdict
            await check_fencing(Away(MemoryObjectStore()), KEYS, mode=mode, random=Random(1))


class LinkReplaces(RealDisk):
    """A file system whose link takes a name that is taken, as some over a network do for two clients."""

    def link(self, source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.remove(target)
        super().link(source, target)


class LinkLooksFirst(RealDisk):
    """A file system that looks whether there is such a name, and gives it afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.racing = threading.Barrier(2)

    def link(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(target)
        if "race-" in target:
            try:
                self.racing.wait(0.2)  # until another is as far
            except threading.BrokenBarrierError:
                self.racing.reset()
        with contextlib.suppress(FileExistsError):
            super().link(source, target)


class NoLinks(RealDisk):
    """A file system without hard links."""

    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), source)


@pytest.mark.parametrize(
    ("disk", "says"),
    [
        (LinkReplaces, "a second create overwrote the first"),
        (LinkLooksFirst, "one at a time"),
        (NoLinks, "no hard links"),
    ],
)
async def test_a_directory_that_does_not_arbitrate_is_refused(tmp_path: Path, disk: type[RealDisk], says: str) -> None:
    store = FileObjectStore(str(tmp_path), disk=disk())
    with pytest.raises(UnfitStoreError, match=rf"{says}.*: set coldFencing=ballots, which it is fit for$"):
        await check_fencing(store, KEYS, mode=FencingMode.CONDITIONAL, random=Random(1), races=DIRECTORY_RACES)
    await check_fencing(store, KEYS, mode=FencingMode.BALLOTS, random=Random(1), races=DIRECTORY_RACES)


@pytest.mark.parametrize("mode", FencingMode)
async def test_a_directory_that_arbitrates_passes_for_little(tmp_path: Path, mode: FencingMode) -> None:
    class CountedSyncs(RealDisk):
        count = 0

        def sync_directory(self, path: str, *, site: str = "") -> None:
            self.count += 1
            super().sync_directory(path, site=site)

    disk = CountedSyncs()
    for number in (1, 2):
        store = FileObjectStore(str(tmp_path), disk=disk)
        await check_fencing(store, KEYS, mode=mode, random=Random(number), races=DIRECTORY_RACES)
        assert disk.count <= 60 * number
        remaining = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
        folder = KEYS.doctor_prefix.rstrip("/")
        kept = [Path(folder), Path(".partial", folder)]  # however often a broker starts
        assert remaining == {str(path) for each in kept for path in (each, *each.parents) if path.name}


async def test_objects_of_a_dead_doctor_are_removed_and_those_of_a_running_one_kept() -> None:
    class Dated(MemoryObjectStore):
        """`modified_ms` is what the key says."""

        async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            async for info in super().list(prefix, start_after=start_after):
                age_ms = 0 if "own" in info.key else STALE_MS - 1 if "living" in info.key else STALE_MS + 1
                yield ObjectInfo(
                    key=info.key, size_bytes=info.size_bytes, etag=info.etag, modified_ms=10 * STALE_MS - age_ms
                )

    store = Dated()
    kept = ["doctor/0123456789abcdef/living", "doctor/notes.txt", "doctor/visits/2025.csv"]  # the last two are foreign
    for key in ("doctor/0123456789abcdef/1", "doctor/fedcba9876543210-conditional-1", *kept):
        await store.put(key, b"")
    bench = bench_on(store)
    await bench.put(bench.key("own"), b"")
    assert await bench.clear() == []
    assert list(store.objects) == kept


async def test_unlisted_objects_are_removed_by_name_and_failed_removals_are_reported() -> None:
    class NoListing(WrappingObjectStore):
        async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            raise ObjectStoreRefusedError("no", key=prefix)
            yield

        async def delete(self, key: str) -> None:
            if key.endswith("kept"):
                raise ObjectStoreRefusedError("no", key=key)
            await self._inner.delete(key)

        async def delete_many(self, keys: object) -> None:
            raise ObjectStoreRefusedError("no")

    memory = MemoryObjectStore()
    bench = bench_on(NoListing(memory))
    for name in ("kept", "other"):
        await bench.put(bench.key(name), b"")
    assert await bench.clear() == [bench.key("kept")]
    assert list(memory.objects) == [bench.key("kept")]
