"""A store directory on a prefix that holds another one's history does not run, and says what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.crash.broker_process import BrokerProcess
from tests.waiting import until


async def test_a_foreign_prefix_ends_the_broker_with_one_sentence(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    first = BrokerProcess(tmp_path / "first", {"coldUrl": cold.as_uri()})
    await first.start()
    await until(lambda: any(cold.rglob("ledger/*.json")))
    assert await first.stop() == 0
    history = {path: path.read_bytes() for path in cold.rglob("ledger/*.json")}
    second = BrokerProcess(tmp_path / "second", {"coldUrl": cold.as_uri()})
    await second.start()
    async with asyncio.timeout(30):
        assert await second.wait() == 1
    last_line = second.log_tail().splitlines()[-1]
    assert last_line.startswith("thermocline: this prefix holds the history of another store directory")
    assert {path: path.read_bytes() for path in cold.rglob("ledger/*.json")} == history
    assert not (second.store / "abort").exists()
