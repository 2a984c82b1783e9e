"""decompress_frame: what was compressed comes back, in every thread, and after frames that are damaged."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard

from thermocline.tiered.objects.zstd_frames import _contexts, decompress_frame

CONTENTS = [bytes([number]) * (1 + 7_000 * number) for number in range(16)]
THREADS = 4


def test_threads_decompress_at_once_each_with_its_own_context() -> None:
    frames = [zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content) for content in CONTENTS]
    together = threading.Barrier(THREADS)

    def run(_number: int) -> zstandard.ZstdDecompressor:
        together.wait()
        for _ in range(20):
            assert [decompress_frame(frame) for frame in frames] == CONTENTS
        return _contexts.decompressor

    with ThreadPoolExecutor(THREADS) as threads:
        contexts = list(threads.map(run, range(THREADS)))
    assert len({id(each) for each in contexts}) == THREADS


def test_a_damaged_frame_does_no_harm_to_the_next() -> None:
    whole = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(CONTENTS[3])
    for damaged in (whole[:-3], bytes([*whole[:-1], whole[-1] ^ 1]), b"no frame"):
        with pytest.raises(zstandard.ZstdError):
            decompress_frame(damaged)
        assert decompress_frame(memoryview(whole)) == CONTENTS[3]
