"""Member watch: which brokers of this broker's name are alive, and which of them stands in for a master that is gone.

With `enableSlaveActingMaster` alone.

    every brokerHeartbeatInterval        one-way BROKER_HEARTBEAT to each NameServer
    every syncBrokerMemberGroupPeriod    GET_BROKER_MEMBER_GROUP to one NameServer
    NOTIFY_MIN_BROKER_ID_CHANGE          asks again at once

    the members                          a slave is
    id 0 among them                      FOLLOWING
    none with id 0, this id the least    ACTING: NameServers with supportActingMaster show it as the master
    none with id 0, another id the least WAITING
    no answer yet                        WAITING

A master that comes back says so (EXCHANGE_BROKER_HA_INFO) before it registers. From then on the slave is HANDING_OVER,
until NameServers have the master, or HAND_OVER_MS have passed without it.
While no NameServer answers, the last answer counts.
Owner: the hot process's event loop.
Source: broker/BrokerController.java (syncBrokerMemberGroup, updateMinBroker, sendHeartbeat), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from enum import Enum

from thermocline.broker.cluster.registration import Registration
from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.bodies import GetBrokerMemberGroupResponseBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, GetBrokerMemberGroupRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

MASTER_ID = 0
TIMEOUT_MS = 3_000
HAND_OVER_MS = 30_000
LATE_MS = 60_000
"""How long clients may take to learn that the master is back: they ask for routes every 30 s."""


class StandIn(Enum):
    """What a slave is for a master that may be gone."""

    WAITING = "waiting"
    FOLLOWING = "following"
    ACTING = "acting"
    HANDING_OVER = "handing over"


class MemberWatch:
    """See the module's header. `start` once, `close` as often as wanted."""

    def __init__(
        self, registration: Registration, *, config: Callable[[], BrokerConfig], clock: Callable[[], int]
    ) -> None:
        """`clock`: steady, ms."""
        self._registration = registration
        self._config = config
        self._clock = clock
        self._members: Mapping[int, str] = {}
        self._returning: tuple[str, int] | None = None
        self._listeners: list[Callable[[StandIn], None]] = []
        self._stood_in_ms: int | None = None
        self._due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.state = StandIn.WAITING

    def add_listener(self, listener: Callable[[StandIn], None]) -> None:
        """Call it with each new state."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin; returns at once."""
        assert not self._tasks
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._beat(), name="heartbeats to NameServers"),
            loop.create_task(self._run(), name="watch of the members"),
        ]

    async def close(self) -> None:
        """Stop. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def master_address(self) -> str | None:
        """host:port of the master, also of one that is about to register; None: there is none."""
        if self._returning is not None:
            return self._returning[0]
        return self._members.get(MASTER_ID)

    @property
    def is_taken_for_master(self) -> bool:
        """Whether there may be clients whose route shows this slave as the master."""
        if self.state in (StandIn.ACTING, StandIn.HANDING_OVER):
            return True
        return self._stood_in_ms is not None and self._clock() - self._stood_in_ms < LATE_MS

    def ask_soon(self) -> None:
        """Ask a NameServer now."""
        self._due.set()

    def master_returns(self, address: str) -> None:
        """The master at this address is there, and about to register."""
        if MASTER_ID not in self._members:
            self._returning = address, self._clock() + HAND_OVER_MS
            self._update()

    async def step(self) -> None:
        """Ask a NameServer for the members."""
        config = self._config()
        command = RemotingCommand.request(
            RequestCode.GET_BROKER_MEMBER_GROUP,
            GetBrokerMemberGroupRequestHeader(cluster_name=config.cluster_name, broker_name=config.broker_name),
        )
        try:
            answer = await self._registration.call(command, timeout_ms=TIMEOUT_MS)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                group = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
                if config.broker_id in group.broker_addrs:  # else it has forgotten this broker, or never had it
                    self._members = dict(group.broker_addrs)
        except MQError as error:
            logger.debug("members not known anew error=%s", error)
        self._update()

    def heartbeat(self) -> RemotingCommand:
        """A sign of life."""
        config = self._config()
        header = BrokerHeartbeatRequestHeader(
            cluster_name=config.cluster_name,
            broker_addr=self._registration.advertised_address,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
        )
        return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)

    def _update(self) -> None:
        if self._returning is not None and (MASTER_ID in self._members or self._clock() >= self._returning[1]):
            self._returning = None
        state = self._state()
        if state is not self.state:
            logger.info("this broker is %s, was %s members=%s", state.value, self.state.value, sorted(self._members))
            if self.state in (StandIn.ACTING, StandIn.HANDING_OVER):
                self._stood_in_ms = self._clock()
            self.state = state
            for listener in self._listeners:
                listener(state)

    def _state(self) -> StandIn:
        if not self._config().is_slave or not self._members:
            return StandIn.WAITING
        if MASTER_ID in self._members:
            return StandIn.FOLLOWING
        if self._returning is not None:
            return StandIn.HANDING_OVER
        return StandIn.ACTING if min(self._members) == self._config().broker_id else StandIn.WAITING

    async def _beat(self) -> None:
        while True:
            self._registration.send_to_all(self.heartbeat())
            await asyncio.sleep(self._config().heartbeat_ms / 1_000)

    async def _run(self) -> None:
        while True:
            self._due.clear()
            try:
                await self.step()
            except Exception:
                # A bug must not leave a slave in one state for ever.
                logger.exception("members not looked up, a bug of ours")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config().member_group_ms / 1_000):
                    await self._due.wait()
