"""The programs in examples/ run as their headers say, against a broker that is started as they say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon
from tests.docs.pages import DOCS, ROOT, code, table_rows

OF_THE_BUCKET = {"cold_reader"}
"""Needs no broker and none of our packages: docs/cold-format.md, tests/tiered/test_stand_alone_reader.py."""
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in OF_THE_BUCKET)
TIMEOUT_S = 120
BUSY = "[TIMEOUT_CLEAN_QUEUE]broker busy"
"""Of a send that a loaded machine has made wait, and that is tried again."""
WRITTEN = {
    "ordered_messages": [f"order {number}: ordered, paid, packed, sent" for number in (1, 2, 3)],
    "broadcast": [
        "till-1: book 12, lamp 40",
        "till-2: book 12, lamp 40",
        "till-1: book 12, lamp 35",
        "till-2: lamp 35",
    ],
    "batches": [
        r"sent: 1000 messages in \d\d? requests",
        "received: 1000 messages, in order",
    ],
    "delay_levels": [
        "at once: 0 s",
        r"after a second: [1-4] s",
        r"after five seconds: ([5-9]|\d\d) s",
    ],
    "retries": [
        "paid: bill 1, bill 2",
        "given up after 3 tries: bill 3, first sent to bills",
    ],
    "request_reply": [
        "book: 12 EUR",
        "lamp: 40 EUR",
        "moon: no answer",
    ],
    "message_trace": [
        "sent by shop: 8 bytes, tag paid, key 4711",
        "consumed by billing: SUCCESS",
        "consumed by shipping: SUCCESS",
    ],
    "tags": [
        "warehouse: order 1 paid, order 3 paid",
        "bookkeeping: order 1 paid, order 3 paid, order 1 refunded",
        "archive: order 1 paid, order 2 cancelled, order 3 paid, order 1 refunded",
    ],
    "timed_messages": [
        "waiting: order 4711, order 4712",
        "paid, so not to be reminded of: order 4711",
        r"reminder: order 4712, ([3-9]\d{3}|\d{5,}) ms after it was sent",
    ],
    "chosen_messages": [
        "readers: book for 25, book for 12",
        "savers: book for 9, lamp for 15, book for 12",
    ],
    "transactions": [
        "order 1: COMMIT_MESSAGE",
        "order 2: ROLLBACK_MESSAGE",
        "order 3: UNKNOWN",
        "to ship: order 1, order 3",
    ],
    "pop_consumer": [
        "stuck with 4 pictures",
        "done: 30 pictures, 4 of them came back",
    ],
}
"""What each writes."""


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(WRITTEN)
    listed = [code(row.cells["program"]) for row in table_rows(DOCS / "sdk.md") if "program" in row.cells]
    assert sorted(listed) == [f"examples/{path.name}" for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    header = path.read_text().split('"""')[1]
    (start,) = re.findall(r"^ +thermocline (dev.*)$", header, re.MULTILINE)
    assert f"python examples/{path.name} [NAMESERVER]" in header
    daemon = Daemon([*shlex.split(start), "--namesrv", FREE_ADDRESS, "--listen", FREE_ADDRESS], tmp_path)
    try:
        run = subprocess.run(
            [sys.executable, str(path), daemon.ready()["namesrv"]],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    finally:
        status = daemon.stop()
    assert (run.returncode, status) == (0, 0), run.stderr
    assert [line for line in run.stderr.splitlines() if BUSY not in line] == []
    lines = run.stdout.splitlines()
    assert len(lines) == len(WRITTEN[path.stem])
    assert all(re.fullmatch(wanted, line) for wanted, line in zip(WRITTEN[path.stem], lines, strict=True)), lines
