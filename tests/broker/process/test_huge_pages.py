"""Huge pages: large anonymous ranges are advised, stacks and files are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from thermocline.broker.process.huge_pages import heap_ranges

MAPS = """\
55d0c0000000-55d0c0800000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0000400000-7f00007ff000 rw-s 00000000 00:00 0
7f0001000000-7f0001001000 ---p 00000000 00:00 0
7f0001001000-7f0001801000 rw-p 00000000 00:00 0
7f0002000000-7f0003000000 rw-p 00000000 fd:00 77                         /a/b c/commitlog/00000000000000000000
7f0003000000-7f0004000000 r--p 00000000 fd:00 78                         /lib.so
7f0004000000-7f0004001000 ---p 00000000 fd:00 78                         /lib.so
7f0004001000-7f0004801000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0                          [stack]
"""

PROGRAM = """
from thermocline.broker.process.huge_pages import advise_heap
block = bytearray(32 << 20)
assert advise_heap() >= 32 << 20
flags = [line.split() for line in open("/proc/self/smaps") if line.startswith("VmFlags")]
assert any("hg" in line for line in flags)
"""


def test_ranges_of_the_heap() -> None:
    """The one behind a guard page is a thread's stack."""
    assert list(heap_ranges(MAPS.splitlines())) == [
        (0x55D0C0000000, 0x55D0C0800000),
        (0x7F0000000000, 0x7F0000400000),
        (0x7F0004001000, 0x7F0004801000),
    ]


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this kernel has no transparent huge pages"
)
def test_the_kernel_takes_the_advice() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
