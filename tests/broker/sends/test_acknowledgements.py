"""Acknowledgements: what pulls that wait are shown when a flush takes too long. See also test_send.py, test_pull.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.broker.data_broker import data_broker
from tests.broker.pulling import TOPIC, Consumer, offsets
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame
from thermocline.store.config.store_config import FlushDiskType


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_a_flush_that_ends_after_its_time_shows_its_messages(tmp_path: Path, *, through_chunks: bool) -> None:
    """Else a pull that waits would get them with the next message, or at the end of its time."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        consumer = Consumer(broker)
        consumer.send()
        await asyncio.sleep(0)  # it is shown
        held: list[Any] = []
        broker.store.flush.use(lambda job, done: held.append((job, done)))
        waiting = consumer.ask(1, sysFlag=6, suspendTimeoutMillis=60_000)
        sender = Wire(broker.dispatcher, broker.hot if through_chunks else None)
        sender.receive(send_frame(opaque=1))
        broker.clock.now_ms += broker.store.config.sync_flush_timeout_ms
        broker.hot.tick(broker.clock.now_ms)
        assert [answer.code for answer in await sender.wait_commands()] == [10]
        assert consumer.wire.drain() == b""
        ((job, done),) = held
        job()
        done(None)
        assert offsets(await consumer.answer_to(waiting)) == [1]
