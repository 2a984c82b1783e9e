"""Links to other brokers, as the assembly makes them: their deadlines go by a clock that is never set.

Covers `broker/assembly/cluster.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.control_broker import control_broker
from thermocline.broker.cluster.peer_brokers import ASK_AGAIN_MS
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.request_code import RequestCode

HOUR_MS = 3_600_000


async def test_a_broker_that_was_not_found_is_looked_up_again_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no static topic, and no message popped elsewhere, would be served for as long as the clock was set back."""
    async with control_broker(tmp_path) as broker:
        cluster, asked = broker.parts.cluster, []

        async def call(command: RemotingCommand, *, timeout_ms: int) -> None:
            asked.append(command.code)

        monkeypatch.setattr(cluster.registration, "call", call)
        for _ in range(2):
            with pytest.raises(MQError):
                await cluster.peers.call("other", RemotingCommand.request(RequestCode.GET_MAX_OFFSET))
            broker.clock.set_back(HOUR_MS)
            broker.clock.now_ms += ASK_AGAIN_MS
        assert asked == [RequestCode.GET_BROKER_CLUSTER_INFO] * 2
