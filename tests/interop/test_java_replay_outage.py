"""The official Java push consumer, unmodified, through outages of the tier process and of the S3 server.

What happens is in `tests/crash/replay_outage.py`: the consumer must get each message of history once, none skipped.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.replay_outage import TOPIC, StoreOutage, TierOutage, replay_through
from tests.fixtures_s3 import new_bucket
from tests.interop.java_agent import JavaAgent
from thermocline.localstack import S3Server

pytestmark = [pytest.mark.java, pytest.mark.crash, pytest.mark.xdist_group("interop-replay")]

_numbers = itertools.count(1)


class JavaReplay:
    """A Replay by the client behind an agent. `options`: of its consumer; without any, those of a Java one that is held
    back to few messages, so that an outage meets it on its way."""

    def __init__(self, agent: JavaAgent, group: str, name_server: str, **options: object) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self.bodies: dict[tuple[int, int], bytes] = {}
        self._agent = agent
        self._name = f"{group}-{next(_numbers)}"
        self._group = group
        self._name_server = name_server
        self._options = options or {"pull_batch_size": 16, "pull_threshold_for_queue": 64, "pull_interval_ms": 50}

    async def __aenter__(self) -> JavaReplay:
        # The name server that it queries runs in this process: never wait for the agent on the loop.
        await asyncio.to_thread(
            self._agent.call,
            "start_push_consumer",
            name=self._name,
            namesrv=self._name_server,
            group=self._group,
            topics={TOPIC: "*"},
            **self._options,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._agent.call, "stop_consumer", name=self._name)

    async def refresh(self) -> None:
        """Take over what it has received."""
        for message in await asyncio.to_thread(self._agent.received, self._name, count=0):
            place = message.queue_id, message.queue_offset
            self.seen[place] += 1
            self.bodies[place] = message.body


@pytest.mark.full
async def test_the_tier_process_dies_during_a_replay(
    tmp_path: Path, case_count: Callable[..., int], java_agent_process: JavaAgent
) -> None:
    await replay_through(
        tmp_path,
        f"file://{tmp_path}/cold",
        TierOutage,
        lambda group, name_server: JavaReplay(java_agent_process, group, name_server),
        outages=case_count(quick=1, soak=20),
    )


@pytest.mark.full
@pytest.mark.s3
async def test_the_s3_server_dies_during_a_replay(
    tmp_path: Path, case_count: Callable[..., int], java_agent_process: JavaAgent, private_s3_server: S3Server
) -> None:
    await replay_through(
        tmp_path,
        new_bucket(private_s3_server).cold_url,
        lambda _: StoreOutage(private_s3_server),
        lambda group, name_server: JavaReplay(java_agent_process, group, name_server),
        outages=case_count(quick=1, soak=20),
    )
