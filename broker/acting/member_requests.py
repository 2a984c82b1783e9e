"""Member requests: what NameServers and brokers of the same name tell each other.

    905 NOTIFY_MIN_BROKER_ID_CHANGE   a NameServer has another least id: the members are looked up at once
    906 EXCHANGE_BROKER_HA_INFO       with a master's address: a master is back, and about to register; the answer comes
                                      when nothing is delivered in its place any more. Without one: a slave asks
    60  GET_TIMER_CHECK_POINT         at a slave: how far timed messages are delivered, by its master or in its place
    61  GET_TIMER_METRICS             at a slave: how many timed messages of each topic wait

The answer to 906 of a slave of ours has three fields more
    timersAtRest   all timed messages that were due have gone out
    logStart       where its copy of the log begins
    hasHistory     what is before that is served from the bucket
Source: broker/processor/AdminBrokerProcessor.java (notifyMinBrokerIdChange, updateBrokerHaInfo), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from thermocline.broker.acting.acting_services import ActingServices
from thermocline.broker.cluster import MemberWatch
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.store.message_store import MessageStore
from thermocline.timers.followed_timers import FollowedTimers

AT_REST_FIELD, LOG_START_FIELD, HISTORY_FIELD = "timersAtRest", "logStart", "hasHistory"
SETTLED_S_MAX = 2.5
"""The caller waits three seconds for the answer."""


class MasterMemberRequests:
    """What a master answers."""

    def __init__(self, store: MessageStore, *, address: str, ha_address: str | None) -> None:
        """`address`, `ha_address`: host:port for clients, and of the log; None: no port is open for slaves."""
        self._store = store
        self._address = address
        self._ha_address = ha_address

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.notify,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
        }

    def notify(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """905: nothing to do for a master."""
        return RemotingCommand.response(command)

    def exchange(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """906: where slaves find the log."""
        if command.header(ExchangeHAInfoHeader).master_ha_address:
            return RemotingCommand.response(command)  # another master of this name: an operator has to choose
        header = ExchangeHAInfoHeader(
            master_ha_address=self._ha_address,
            master_flush_offset=self._store.commit_log.flush_offset,
            master_address=self._address,
        )
        return RemotingCommand.response(command, header=header)


class SlaveMemberRequests:
    """What a slave answers that may stand in for its master."""

    def __init__(
        self,
        members: MemberWatch,
        services: ActingServices,
        *,
        follow: Callable[[str], None],
        followed_timers: FollowedTimers | None,
        log_start: Callable[[], PhysicalOffset],
        has_history: bool,
    ) -> None:
        """`follow(host:port)`: copies the log from there. `followed_timers`: None while timers are switched off.
        `log_start`: where the log begins. `has_history`: what is before that is served from the bucket."""
        self._log_start = log_start
        self._has_history = has_history
        self._members = members
        self._services = services
        self._follow = follow
        self._followed_timers = followed_timers

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.notify,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
        }

    def notify(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """905: look the members up."""
        self._members.ask_soon()
        return RemotingCommand.response(command)

    async def exchange(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """906: a master is back."""
        header = command.header(ExchangeHAInfoHeader)
        if not header.master_ha_address or not header.master_address:
            return RemotingCommand.response(command)
        self._members.master_returns(header.master_address)
        self._follow(header.master_ha_address)
        is_settled = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S_MAX):
                await self._services.settled()
                is_settled = True
        is_at_rest = is_settled and self._services.is_at_rest
        fields = {
            AT_REST_FIELD: "true" if is_at_rest else "false",
            LOG_START_FIELD: str(self._log_start()),
            HISTORY_FIELD: "true" if self._has_history else "false",
        }
        return RemotingCommand.response(command, ext_fields=fields)

    def get_timer_checkpoint(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """60: in the form of RocketMQ's file."""
        timers = self._services.timers or self._followed_timers
        if timers is None:
            raise MQError("The checkpoint is null")
        return RemotingCommand.response(command, body=timers.checkpoint.encode_shared())

    def get_timer_metrics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """61: as in RocketMQ's file."""
        if self._services.timers is not None:
            return RemotingCommand.response(command, body=self._services.timers.metrics.encode())
        if self._followed_timers is None:
            raise MQError("The timer message store is null")
        return RemotingCommand.response(command, body=self._followed_timers.metrics)
