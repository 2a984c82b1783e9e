"""The limit of open files is raised to its maximum, and logged only when the number of open files comes near it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thermocline.remoting.connections.descriptor_limit import DescriptorWatch, open_descriptors

_LIMITED = """
import logging, resource, sys
from thermocline.remoting.connections.descriptor_limit import DescriptorWatch, raise_descriptor_limit
from thermocline.remoting.errors import InvalidRequestError

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    print(raise_descriptor_limit(files=3_000, least=1_024), *resource.getrlimit(resource.RLIMIT_NOFILE))
except InvalidRequestError as error:
    print(error)
    sys.exit(1)
watch = DescriptorWatch()
watch.check()
files = [open("/dev/null") for _ in range(int(sys.argv[3]))]
watch.check()
watch.check()
for file in files:
    file.close()
watch.check()
"""


def run_limited(*, soft: int, hard: int, opened: int = 0) -> subprocess.CompletedProcess[str]:
    """A process of its own: a hard limit cannot be raised again."""
    return subprocess.run(
        [sys.executable, "-c", _LIMITED, str(soft), str(hard), str(opened)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("soft", "hard", "connections"), [(256, 4_096, 2_048), (1_024, 1_024, 512), (4_096, 8_192, 5_192)]
)
def test_the_soft_limit_becomes_the_hard_one_without_a_word(soft: int, hard: int, connections: int) -> None:
    finished = run_limited(soft=soft, hard=hard)
    assert finished.stdout.split() == [str(connections), str(hard), str(hard)]
    assert finished.stderr == ""


def test_a_limit_that_is_of_no_use_is_refused() -> None:
    finished = run_limited(soft=256, hard=512)
    assert finished.returncode == 1
    assert "the limit of open files is too low" in finished.stdout


def test_the_open_count_is_logged_once_when_it_comes_near() -> None:
    lines = run_limited(soft=1_024, hard=1_024, opened=850).stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("WARNING")
    assert "open files come near their limit" in lines[0]
    assert "limit=1024" in lines[0]
    assert lines[1].startswith("INFO")


def test_the_warning_comes_again_after_it_was_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts = iter([100, 799, 800, 900, 750, 800, 699, 799, 1_000])
    watch = DescriptorWatch(count=lambda: next(counts), limit=lambda: 1_000)
    for _ in range(9):
        watch.check()
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("WARNING", (800, 1_000)),
        ("INFO", (699, 1_000)),
        ("WARNING", (1_000, 1_000)),
    ]


def test_the_count_follows_opened_descriptors(tmp_path: Path) -> None:
    before = open_descriptors()
    opened = [os.open(tmp_path, os.O_RDONLY) for _ in range(50)]
    assert open_descriptors() == before + 50
    for descriptor in opened:
        os.close(descriptor)
