"""The promises of an object store, held by every provider and every wrapper.

Covers `tiered/wrappers/throttling.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.fixtures_s3 import S3Bucket
from tests.simulated_disk import SimulatedDisk
from thermocline.localstack import SERVER_KINDS, S3Server
from thermocline.remoting.errors import (
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    SegmentSizeError,
)
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.objects.errors import AlreadyExistsError
from thermocline.tiered.objects.object_store import ObjectStore, check_key
from thermocline.tiered.s3 import S3ObjectStore, S3Options
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import (
    Fault,
    FaultInjectingObjectStore,
    MeteringObjectStore,
    RetryingObjectStore,
    RetryPolicy,
    StoreLimits,
    StoreRates,
    ThrottlingObjectStore,
)
from thermocline.tiered.wrappers.fault_injection import unreliable


async def no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)


RACING_WRITERS = 16


class ObjectStoreContract:
    """What `object_store.py` promises. A subclass gives `store`, an empty one."""

    async def test_put_and_get(self, store: ObjectStore) -> None:
        await store.put("topics/a/one.log", b"hello")
        assert await store.get("topics/a/one.log") == b"hello"
        await store.put("topics/a/one.log", bytearray(b"other"))
        assert await store.get("topics/a/one.log") == b"other"
        await store.put("topics/a/empty", b"")
        assert await store.get("topics/a/empty") == b""

    async def test_views_are_stored(self, store: ObjectStore) -> None:
        data = Random(1).randbytes(700_000)  # above the size up to which bodies are sent in place
        await store.put("view", memoryview(data)[5:-5])
        assert await store.get("view") == data[5:-5]

    async def test_ranges(self, store: ObjectStore) -> None:
        await store.put("x", b"0123456789")
        assert await store.get_range("x", start=0, end=10) == b"0123456789"
        assert await store.get_range("x", start=3, end=4) == b"3"
        for start, end in ((5, 11), (10, 11), (50, 60)):
            with pytest.raises(SegmentSizeError):
                await store.get_range("x", start=start, end=end)

    async def test_suffix(self, store: ObjectStore) -> None:
        await store.put("x", b"0123456789")
        await store.put("empty", b"")
        suffix = await store.get_suffix("x", size_bytes=3)
        assert (suffix.data, suffix.size_bytes, suffix.start) == (b"789", 10, 7)
        assert (await store.get_suffix("x", size_bytes=100)).data == b"0123456789"
        assert (await store.get_suffix("empty", size_bytes=5)).data == b""

    async def test_missing_objects_are_errors(self, store: ObjectStore) -> None:
        await store.put("folder/inside", b"1")
        for key in ("nothing", "folder", "folder/inside2", "no/such/folder/at/all"):
            with pytest.raises(ObjectNotFoundError):
                await store.get(key)
            with pytest.raises(ObjectNotFoundError):
                await store.get_range(key, start=0, end=1)
            with pytest.raises(ObjectNotFoundError):
                await store.get_suffix(key, size_bytes=1)
            with pytest.raises(ObjectNotFoundError):
                await store.head(key)
        assert await self.keys(store, "no/such/folder/") == []

    async def test_head(self, store: ObjectStore) -> None:
        await store.put("a/b", b"12345")
        info = await store.head("a/b")
        assert (info.key, info.size_bytes) == ("a/b", 5)
        assert info.modified_ms >= 0
        assert info.etag

    async def test_create_if_absent(self, store: ObjectStore) -> None:
        await store.create_if_absent("ledger/1", b"first")
        with pytest.raises(AlreadyExistsError):
            await store.create_if_absent("ledger/1", b"second")
        assert await store.get("ledger/1") == b"first"
        await store.delete("ledger/1")
        await store.create_if_absent("ledger/1", b"third")
        assert await store.get("ledger/1") == b"third"

    async def test_one_of_many_racing_writers_wins(self, store: ObjectStore) -> None:
        async def attempt(number: int, round_number: int) -> bool:
            try:
                await store.create_if_absent(f"ledger/{round_number}", b"%d" % number * 1000)
            except AlreadyExistsError:
                return False
            return True

        for round_number in range(4):
            won = await asyncio.gather(*(attempt(number, round_number) for number in range(RACING_WRITERS)))
            assert won.count(True) == 1
            assert await store.get(f"ledger/{round_number}") == b"%d" % won.index(True) * 1000

    async def test_list_in_order_of_bytes(self, store: ObjectStore) -> None:
        keys = ["a/b/1", "a/b/2", "a/b-1", "a/b0", "a/=2", "b/c/d/e", "b/c-d"]
        for key in reversed(keys):
            await store.put(key, key.encode())
        ordered = sorted(keys, key=str.encode)
        assert await self.keys(store, "") == ordered
        assert await self.keys(store, "a/b") == ["a/b-1", "a/b/1", "a/b/2", "a/b0"]
        assert await self.keys(store, "a/b/") == ["a/b/1", "a/b/2"]
        assert await self.keys(store, "b/c/d/e") == ["b/c/d/e"]
        assert await self.keys(store, "zzz") == []
        for position, key in enumerate(ordered):
            assert await self.keys(store, "", start_after=key) == ordered[position + 1 :]
        assert await self.keys(store, "", start_after="a/b/") == ordered[ordered.index("a/b/1") :]
        sizes = {info.key: info.size_bytes async for info in store.list("b/")}
        assert sizes == {"b/c/d/e": 7, "b/c-d": 5}

    async def test_delete(self, store: ObjectStore) -> None:
        for number in range(5):
            await store.put(f"d/{number}", b"x")
        await store.delete("d/1")
        await store.delete("d/1")
        await store.delete("nothing/at/all")
        assert await self.keys(store, "d/") == ["d/0", "d/2", "d/3", "d/4"]
        await store.delete_many(["d/0", "d/3", "d/9"])
        await store.delete_many([])
        assert await self.keys(store, "d/") == ["d/2", "d/4"]
        with pytest.raises(ObjectNotFoundError):
            await store.get("d/3")

    async def test_unusual_keys(self, store: ObjectStore) -> None:
        for key in ("t/=25RETRY=25g/0000000001-0000000002.log", "t/a b", "t/a+b", "t/ä=~'x", "t/a%20b", "t/a&b;c@d,e"):
            await store.put(key, key.encode())
            assert await store.get(key) == key.encode()
        assert len(await self.keys(store, "t/")) == 6

    async def test_bad_keys(self, store: ObjectStore) -> None:
        for key in ("", "/a", "a/", "a//b", "a/../b", ".", "a/.", "x" * 1025, "a\0b"):
            with pytest.raises(InvalidRequestError):
                await store.put(key, b"")

    async def test_nothing_incomplete(self, store: ObjectStore) -> None:
        await store.put("a/1", b"1")
        assert await store.remove_incomplete("a/") == 0
        assert await self.keys(store, "") == ["a/1"]

    async def test_close_twice(self, store: ObjectStore) -> None:
        await store.close()
        await store.close()

    async def keys(self, store: ObjectStore, prefix: str, *, start_after: str = "") -> list[str]:
        return [info.key async for info in store.list(prefix, start_after=start_after)]


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjectStore()


class TestFileOnRealDisk(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return FileObjectStore(str(tmp_path / "cold"), disk=RealDisk())


class TestFileOnSimulatedDisk(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FileObjectStore("/cold", disk=SimulatedDisk(), in_thread=False)


class TestRetryingMemory(ObjectStoreContract):
    """Behind retries, a store that fails now and then is as good as one that does not."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        def plan(number: int, call: object) -> Fault:
            return Fault.UNREACHED if number % 3 == 0 else Fault.NONE

        faulty = FaultInjectingObjectStore(MemoryObjectStore(), plan)
        return RetryingObjectStore(faulty, policy=RetryPolicy(attempts_max=20), random=Random(1), sleep=no_sleep)


class TestMeteringMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MeteringObjectStore(MemoryObjectStore())


class TestThrottlingMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        now_ms = [0.0]

        async def sleep(seconds: float) -> None:
            now_ms[0] += seconds * 1000
            await asyncio.sleep(0)

        return ThrottlingObjectStore(
            MemoryObjectStore(),
            clock_ms=lambda: now_ms[0],
            sleep=sleep,
            rates=StoreRates(
                StoreLimits(
                    write_bytes_per_second=10_000,
                    write_requests_per_second=100,
                    read_bytes_per_second=10_000,
                    read_requests_per_second=100,
                )
            ),
        )


class TestFaultInjectingMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultInjectingObjectStore(MemoryObjectStore(), unreliable(Random(1), probability=0.0))


@asynccontextmanager
async def open_s3(bucket: S3Bucket, *, prefix: str = "some/prefix", **options: int) -> AsyncIterator[S3ObjectStore]:
    """A store in a test's bucket."""
    chosen = S3Options(
        bucket=bucket.name,
        prefix=prefix,
        endpoint=bucket.endpoint,
        region=bucket.region,
        access_key=bucket.access_key,
        secret_key=bucket.secret_key,
        **options,
    )
    store = await S3ObjectStore.open(chosen)
    try:
        yield store
    finally:
        await store.close()


def elsewhere(store: S3ObjectStore, **changes: str | int) -> S3ObjectStore:
    """A store on the same client, whose making takes longer than most tests; it has nothing to close."""
    return S3ObjectStore(replace(store._options, **changes), store._client, AsyncExitStack())


class S3Contract(ObjectStoreContract):
    """What only S3 has, besides the contract; `store` is on a bucket that is the test's own."""

    async def test_multipart(self, store: S3ObjectStore) -> None:
        mib = 1024 * 1024
        data = Random(2).randbytes(11 * mib)
        small = elsewhere(store, put_bytes_max=6 * mib, part_bytes=5 * mib)
        await small.put("large", data)
        assert await small.get("large") == data
        assert await small.get_range("large", start=5 * mib - 3, end=5 * mib + 3) == data[5 * mib - 3 : 5 * mib + 3]

    async def test_unfinished_multipart_uploads_are_removed(self, store: S3ObjectStore) -> None:
        uploads = elsewhere(store, prefix="uploads")
        for key in ("uploads/mine/1", "uploads/other/1"):
            await store._client.create_multipart_upload(Bucket=store._options.bucket, Key=key)
        assert await uploads.remove_incomplete("mine/") == 1
        assert await uploads.remove_incomplete("mine/") == 0
        assert await elsewhere(store, prefix="").remove_incomplete("uploads/") == 1

    async def test_prefixes_are_apart(self, store: S3ObjectStore) -> None:
        inner, outer = elsewhere(store, prefix="outer/inner"), elsewhere(store, prefix="outer")
        await inner.put("k", b"1")
        assert await self.keys(outer, "") == ["inner/k"]
        assert await self.keys(inner, "") == ["k"]

    async def test_a_missing_bucket(self, store: S3ObjectStore) -> None:
        missing = elsewhere(store, bucket="no-such-bucket")
        with pytest.raises(ObjectStoreUnavailableError):
            await missing.put("k", b"1")
        with pytest.raises(ObjectStoreUnavailableError):
            await missing.get("k")


@pytest.mark.s3
class TestS3(S3Contract):
    """Test by test on one server."""

    @pytest.fixture
    async def store(self, s3_bucket: S3Bucket) -> AsyncIterator[S3ObjectStore]:
        async with open_s3(s3_bucket) as store:
            yield store


@pytest.mark.s3
@pytest.mark.parametrize("s3_server_kind", SERVER_KINDS, indirect=True)
async def test_the_contract_on_every_server(any_s3_bucket: S3Bucket, any_s3_server: S3Server) -> None:
    """All of it with one client, on each server that there is a launcher for."""
    contract = S3Contract()
    names = [name for name in dir(contract) if name.startswith("test_") and name != "test_close_twice"]
    async with open_s3(any_s3_bucket) as store:
        for number, name in enumerate(names):
            try:
                await getattr(contract, name)(elsewhere(store, prefix=f"test-{number}"))
            except BaseException as error:
                error.add_note(f"in {name} on {any_s3_server.kind}")
                raise


async def test_s3_without_a_server() -> None:
    bucket = S3Bucket(
        name="bucket", endpoint="http://127.0.0.1:9", region="us-east-1", access_key="key", secret_key="secret"
    )
    async with open_s3(bucket) as store:
        with pytest.raises(ObjectStoreUnavailableError):
            await store.get("k")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.create_if_absent("k", b"")


def test_check_key() -> None:
    check_key("a" * 1024)
    check_key("a/b/c.d-e_f")
