"""A static topic whose messages have left the local log: its logic queues reach them in the cold tier.

Covers `broker/assembly/reads.py`, `broker/pulls/cold_pull_limits.py`, `broker/pulls/pull_reply.py`,
`broker/pulls/remote_pull.py`, `broker/pulls/static_pull.py`, `broker/static_topics/physical_queues.py`,
`broker/static_topics/static_offsets.py`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.pulling import expire_local_files
from tests.broker.static_topics.two_brokers import GROUP, TOPIC, Peers, item, one_broker
from thermocline.remoting.records.message_record import iterate_records

FIRST = item(0, "a", 0, queue_id=2)
MOVED = item(1, "b", 10_000, queue_id=1)


@pytest.mark.parametrize("reader", ["the leader itself", "the next leader"])
async def test_history_is_read_through_the_mapping(tmp_path: Path, reader: str) -> None:
    cold = MemoryColdTier()
    peers = Peers({})
    async with AsyncExitStack() as stack:
        stack.push_async_callback(peers.close)
        a = await stack.enter_async_context(one_broker(tmp_path / "a", "a", peers, cold=cold, log_file_bytes=4_096))
        b = await stack.enter_async_context(one_broker(tmp_path / "b", "b", peers))
        peers.addresses |= {side.name: f"127.0.0.1:{side.port}" for side in (a, b)}
        for side in (a, b):
            await side.map({0: [FIRST]} if side is a else {})
            await side.ask(200, body=b'{"groupName":"%s"}' % GROUP.encode())
        for number in range(60):
            a.broker.clock.now_ms += 1_000
            assert (await a.send(body=b"%d" % number)).code == 0
        cold.copy_from(a.broker.store, TOPIC, 2, end=40)
        assert expire_local_files(a.broker, 39, queue_id=2, topic=TOPIC) > 10
        side = a
        if reader == "the next leader":
            for other in (a, b):
                assert (await other.map({0: [FIRST, MOVED]}, epoch=2)).code == 0
            side = b
        bodies: list[bytes] = []
        offset = 0
        while offset < 60:
            answer = await side.pull(offset)
            assert answer.code == 0, answer.remark
            bodies += [record.body for record in iterate_records(memoryview(answer.body), 0, len(answer.body))]
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
        assert bodies == [b"%d" % number for number in range(60)]
        assert await side.offset(31) == 0
        first_ms = await side.offset(32)
        assert await side.offset(29, timestamp=first_ms + 5_000) == 5
