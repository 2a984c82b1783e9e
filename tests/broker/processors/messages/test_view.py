"""View by id: one record by its place in the log, from either tier.

Covers `broker/queues/local_records.py`.
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import data_broker
from tests.broker.pulling import TOPIC, expire_local_files, messages, send_with_keys


async def test_view_by_id(tmp_path: Path) -> None:
    """One record by its place, from either tier."""
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        send_with_keys(broker, 60)
        cold.copy_from(broker.store, TOPIC, 0, end=50)
        stored = broker.records()
        expire_local_files(broker, 30)
        for record in (stored[0], stored[29], stored[59]):
            served = broker.parts.base.stats.served_bytes
            assert messages(await broker.ask_wire(33, offset=record.physical_offset)) == [record]
            assert broker.parts.base.stats.served_bytes == served + record.size_bytes
        end = broker.store.commit_log.append_offset
        for nowhere in (1, stored[40].physical_offset + 1, end - 1, end, end + 5, -1, 2**62):
            answer = await broker.ask_wire(33, offset=nowhere)
            assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {nowhere}")
        cold.is_away = True
        assert (await broker.ask_wire(33, offset=stored[0].physical_offset)).code == 2
        assert (await broker.ask_wire(33, offset=stored[59].physical_offset)).code == 0
