"""The bytes of a bucket's objects: everything that a thief of the objects could read, compressed or not.

It uses no format: at each occurrence of zstd's magic number it decompresses the bytes that follow as far as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import zstandard

from thermocline.tiered.objects.object_store import ObjectStore

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def contents(data: bytes) -> Iterator[bytes]:
    """An object as it is, then every zstd frame in it, decompressed."""
    yield data
    position = data.find(ZSTD_MAGIC)
    while position >= 0:
        try:
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[position:])
        except zstandard.ZstdError:
            yield b""  # four bytes that look like it
        position = data.find(ZSTD_MAGIC, position + 1)


def found_in(objects: Mapping[str, bytes], wanted: Iterable[bytes]) -> set[bytes]:
    """Which of the wanted bytes stand in any of the objects, by their keys."""
    missing, found = set(wanted), set[bytes]()
    for data in objects.values():
        for content in contents(data):
            here = {each for each in missing if each in content}
            missing -= here
            found |= here
    return found


async def objects_of(store: ObjectStore) -> dict[str, bytes]:
    """Every object of a store."""
    return {key: await store.get(key) for key in [info.key async for info in store.list("")]}
