"""A directory through Hadoop's file system: the same as through our own provider."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from thermocline.remoting.errors import ObjectNotFoundError, SegmentSizeError, UnsupportedRequestError
from thermocline.spark.access.hadoop_store import HadoopObjectStore
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.file import FileObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = ("a/b/1", "a/b/2", "a/c/1", "a-b/x", "ab/y/z", "b/topics/=25RETRY=25g/1.log", "z")


async def names(store: ObjectStore, prefix: str, start_after: str) -> list[tuple[str, int]]:
    return [(info.key, info.size_bytes) async for info in store.list(prefix, start_after=start_after)]


def test_it_reads_as_our_own_provider_does(spark_session: SparkSession, tmp_path: Path) -> None:
    async def compare() -> None:
        own = FileObjectStore(str(tmp_path), disk=RealDisk())
        for number, key in enumerate(KEYS):
            await own.put(key, bytes(range(10 + number)))
        hadoop = HadoopObjectStore(spark_session, f"file://{tmp_path}/")
        for prefix in ("", "a", "a/", "a/b/", "a/b/2", "b/topics/", "nothing/here"):
            for start_after in ("", "a/b/1", "a/\U0010ffff", "a/b/\U0010ffff", "b"):
                found = await names(hadoop, prefix, start_after)
                assert found == await names(own, prefix, start_after), (prefix, start_after)
        key = KEYS[5]
        assert await hadoop.get(key) == await own.get(key)
        assert await hadoop.get_range(key, start=3, end=8) == bytes(range(3, 8))
        assert await hadoop.get_suffix(key, size_bytes=4) == await own.get_suffix(key, size_bytes=4)
        assert await hadoop.get_suffix(key, size_bytes=99) == await own.get_suffix(key, size_bytes=99)
        assert (await hadoop.head(key)).size_bytes == 15
        assert hadoop.path_of(key) == f"file:{tmp_path}/{key}"
        for call in (hadoop.get("a/none"), hadoop.head("none"), hadoop.get_range("none", start=0, end=1)):
            with pytest.raises(ObjectNotFoundError):
                await call
        with pytest.raises(SegmentSizeError):
            await hadoop.get_range(key, start=10, end=16)
        for write in (hadoop.put("x", b""), hadoop.create_if_absent("x", b""), hadoop.delete("x")):
            with pytest.raises(UnsupportedRequestError):
                await write

    asyncio.run(compare())
