"""10 000 topics and 100 000 offsets are followed without holding up the event loop.

Covers `broker/replicas/slices.py`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.control_broker import control_broker
from tests.broker.replicas.following import following
from tests.clock import Clock
from thermocline.broker.role_parts import GC_THRESHOLDS
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode

TOPICS, PAIRS, QUEUES = 10_000, 25_000, 4
LONGEST_S = 0.25
"""Of CPU time. In one piece the first round takes more than a second."""


@contextmanager
def longest_turn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The CPU time of each callback of the loop, the longest last: what others waited for at most."""
    turns: list[float] = [0.0]
    run = asyncio.Handle._run

    def timed_run(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        turns.append(time.thread_time() - started)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed_run)
        yield turns
    turns.sort()


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector's settings as they were, after the test."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.full
@pytest.mark.usefixtures("collector")
async def test_a_large_master_is_followed_in_short_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with (
        control_broker(tmp_path / "master", clock=clock) as master,
        following(tmp_path / "slave", master_address=master.address, clock=clock) as slave,
    ):
        for start in range(0, TOPICS, 500):
            body = {"topicConfigList": [{"topicName": f"topic-{number}"} for number in range(start, start + 500)]}
            await master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps(body).encode())
        offsets = master.parts.tables.offsets
        for number in range(PAIRS):
            for queue_id in range(QUEUES):
                offsets.commit(f"topic-{number % TOPICS}", f"group-{number}", queue_id, QueueOffset(number))
        await master.housekeeping.save()
        # As in the hot process; else the collector stops the test for longer than anything else.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        for what in ("all is new", "nothing is new", "one commit and one topic are new"):
            with longest_turn(monkeypatch) as turns:
                await slave.follower.follow_all()
            assert turns[-1] < LONGEST_S, what
            await master.create_topic(f"more-{what.replace(' ', '-')}")
            offsets.commit("topic-1", "group-1", 0, QueueOffset(10**9))
        tables = slave.slave.parts.tables
        assert len(tables.topics) == len(master.parts.tables.topics) - 1
        assert sum(1 for _ in tables.offsets.items()) == PAIRS * QUEUES
