"""The hot process stops its parts in the order in which no acknowledged message is lost (broker/hot_process.py,
broker/role_parts.py).

Covers `broker/assembly/cluster.py`, `broker/assembly/cold_tier.py`, `broker/assembly/health.py`,
`broker/assembly/helper_links.py`,
`broker/assembly/helper_set.py`, `broker/port/late_handler.py`, `broker/port/listener.py`,
`broker/assembly/local_store.py`, `broker/assembly/parts.py`, `broker/assembly/processors.py`,
`broker/assembly/state.py`, `broker/assembly/tables.py`,
`broker/helpers/helper_process.py`, `broker/helpers/index_link.py`,
`broker/helpers/index_process.py`, `broker/process/build_id.py`, `broker/processors/tier/cost.py`,
`broker/processors/tier/scrub.py`, `broker/processors/tier/tier.py`, `broker/state/state_link.py`,
`broker/tier/deletion_gate.py`, `broker/tier/fence.py`, `broker/tier/hidden_messages.py`, `broker/tier/tier_feed.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import HalfFullDisk
from thermocline.broker.hot_process import HotProcess
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig

STOPS = [
    "HotProcess._leave",  # no new connections, unregistered from the NameServers
    "HotProcess._wait_successor",  # the next master takes the tables over, from a master of slaves
    "RemotingServer.close",  # clients: requests in flight are answered
    "RoleSwitch.close",  # all of the role
    "Registration.close",
    "HealthServer.close",
    "Housekeeping.close",  # offsets are written after the last request
    "TopicFollower.close",
    "TierFeed.close",
    "StoreRounds.close",  # with the timers' last round
    "PopPath.close",
    "HotServer.close",  # a flush in flight ends
    "StateLink.close",
    "Tables._keep_clock",
    "PeerBrokers.close",
    "TopicTable.close",
    "ConfigPersister.close",  # after all that ask it to write
    "TimerMessageStore.close",  # after the rounds that write it, before the log that it points into
    "RoleParts._serve.<locals>.<lambda>",  # settings no longer call those that have ended
    "InProcessHelpers.stop",
    "RemotingServer.close",  # helpers
    "SharedPage.close",
    "PresentLog.ended",  # where the log ends, while it is open
    "MessageStore.close",  # last of the role: the log is flushed, the abort mark goes
    "TlsGate.close",  # its thread, which no connection uses any more
]


async def test_a_broker_stops_in_the_order_in_which_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    push_async_callback, push_callback = AsyncExitStack.push_async_callback, AsyncExitStack.callback

    def note_async(stack: Any, callback: Callable[..., Awaitable[None]], *args: Any, **named: Any) -> Any:
        async def stop() -> None:
            stopped.append(callback.__qualname__)
            await callback(*args, **named)

        return push_async_callback(stack, stop)

    def note(stack: Any, callback: Callable[..., None], *args: Any, **named: Any) -> Any:
        def stop() -> None:
            stopped.append(callback.__qualname__)
            callback(*args, **named)

        return push_callback(stack, stop)

    settings = BrokerSettings(
        broker=BrokerConfig(listen_host="127.0.0.1", listen_port=0, health_port=0),
        store=StoreConfig(root_path=str(tmp_path / "store"), log_file_bytes=1 << 20, queue_file_bytes=20_000),
        tier=TierConfig(),
        clock=lambda: time.time_ns() // 1_000_000,
    )
    process = HotProcess(settings, environment=dict(os.environ), single_process=True, disk=HalfFullDisk())

    class NotingStack(AsyncExitStack):
        push_async_callback = note_async
        callback = note

    monkeypatch.setattr("thermocline.broker.role_parts.AsyncExitStack", NotingStack)
    process._resources = NotingStack()
    await process.start()
    await process.close()
    assert stopped == STOPS
