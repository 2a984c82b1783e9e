"""A spool returns what was written, with its size and checksum; in memory and in a file.

Covers `tiered/objects/spool.py`.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from thermocline.tiered.objects.spool import WRITE_BYTES, Spool


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_what_was_written_comes_back(kind: str, tmp_path: Path) -> None:
    spool = Spool(None if kind == "memory" else tmp_path)
    pieces = [b"head", memoryview(b"x" * (WRITE_BYTES + 1)), b"", b"end"]
    for piece in pieces:
        spool.write(piece)
    written = b"".join(pieces)
    assert (spool.size_bytes, spool.crc32) == (len(written), zlib.crc32(written))
    view = spool.finish()
    assert view.readonly
    assert view == written
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    spool.close()
    spool.close()
    assert view == written, "a view outlives its spool"
