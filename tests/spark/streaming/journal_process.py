"""The engine of `micro_batches` as a process, with journal and sink on disk: a query without a JVM, to be killed often.

    python -m tests.spark.streaming.journal_process '{"url": ..., "folder": ..., "options": {...}}'

    folder/offsets/N    the end of batch N, written before it is read
    folder/sink/N       its rows, written when all are read; a batch whose file is there is done

A file is there whole or not at all. A run goes on where the last one was killed, and ends when a file `folder/stop` is
there and nothing is left.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from tests.spark.streaming.micro_batches import Journal, MicroBatches


def main() -> None:
    """Run until stopped, or killed."""
    task = json.loads(sys.argv[1])
    folder = Path(task["folder"])
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "sink").mkdir(exist_ok=True)
    journal = load_journal(folder)
    batches = MicroBatches(journal, task["url"], **task["options"])
    while True:
        is_last = (folder / "stop").exists()
        if journal.done_count == len(journal.ends):
            if not batches.plan():
                if is_last:
                    return
                continue
            put(folder / "offsets" / str(len(journal.ends)), journal.ends[-1].encode())
        batches.run_batch()
        put(folder / "sink" / str(journal.done_count), pickle.dumps(journal.batches.pop()))
        sys.stdout.write(f"batch {journal.done_count}\n")
        sys.stdout.flush()


def load_journal(folder: Path) -> Journal:
    """What earlier runs have left."""
    journal = Journal()
    numbers = sorted(int(path.name) for path in (folder / "offsets").iterdir() if path.name.isdecimal())
    for number in numbers:
        journal.ends.append((folder / "offsets" / str(number)).read_text())
    journal.done_count = sum(path.name.isdecimal() for path in (folder / "sink").iterdir())
    assert journal.done_count <= len(journal.ends) <= journal.done_count + 1
    return journal


def put(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def sink_of(folder: Path) -> list[dict[str, Any]]:
    """All rows, in order."""
    done = sorted(int(path.name) for path in (folder / "sink").iterdir() if path.name.isdecimal())
    return [row for number in done for row in pickle.loads((folder / "sink" / str(number)).read_bytes())]


if __name__ == "__main__":
    main()
