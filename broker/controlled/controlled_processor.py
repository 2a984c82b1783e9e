"""Controlled processor: the requests that a broker under a controller serves.

    906 EXCHANGE_BROKER_HA_INFO    1007 GET_BROKER_EPOCH_CACHE    1008 NOTIFY_BROKER_ROLE_CHANGED
    90192 REPLICA_HAND_OVER

It stands before the processors of brokers without a controller (`Dispatcher`, `before`).
Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from thermocline.broker.controlled.identity_files import BrokerNames
from thermocline.remoting.bodies.replica import EpochEntry, EpochEntryCache
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidRequestError, UnsupportedRequestError
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.private_requests import PrivateRequestCode, ReplicaHandOverAnswer, ReplicaHandOverHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.replication import PAUSE_MS_MAX, Epochs, HandOver

logger = logging.getLogger(__name__)

MASTER_ID = 0


class ReplicaFigures(Protocol):
    """What tools and slaves ask a broker."""

    @property
    def broker_id(self) -> int:
        """0 while it is the master, otherwise the number that the controllers gave."""
        ...

    @property
    def epochs(self) -> Epochs:
        """Of its log."""
        ...

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where its log ends."""
        ...

    @property
    def ha_address(self) -> str:
        """host:port where slaves connect."""
        ...

    @property
    def hand_over(self) -> HandOver | None:
        """Of a master."""
        ...


class ControlledProcessor:
    """See the module's header. Owner: the hot process's loop."""

    def __init__(
        self, figures: ReplicaFigures, names: BrokerNames, *, address: str, noticed: Callable[[int], None]
    ) -> None:
        """`address`: where this broker serves. `noticed`: called with the epoch of each notice."""
        self._figures = figures
        self._names = names
        self._address = address
        self._noticed = noticed

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_ha_info,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.notify_role_changed,
            PrivateRequestCode.REPLICA_HAND_OVER: self.begin_hand_over,
        }

    def exchange_ha_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """906: where the master takes slaves; a broker that is not the master leaves it out.

        Raises:
            UnsupportedRequestError: The request names a master: under a controller the controllers do.
        """
        if command.header(ExchangeHAInfoHeader).master_ha_address is not None:
            raise UnsupportedRequestError("the controllers name the master of this broker")
        answer = ExchangeHAInfoHeader()
        if self._figures.broker_id == MASTER_ID:
            answer = ExchangeHAInfoHeader(
                master_ha_address=self._figures.ha_address,
                master_flush_offset=self._figures.end_offset,
                master_address=self._address,
            )
        return RemotingCommand.response(command, header=answer)

    def get_epochs(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1007: the masters that wrote this broker's log. As RocketMQ's broker has it, an epoch ends where the next one
        begins, and the last one nowhere: `mqadmin` puts the log's end there."""
        epochs = self._figures.epochs
        entries = []
        for entry in epochs:
            shown = EpochEntry(epoch=entry.epoch, start_offset=entry.start_offset)
            end_offset = epochs.end_of(entry.epoch)
            if end_offset is not None:
                shown.end_offset = end_offset
            entries.append(shown)
        body = EpochEntryCache(
            cluster_name=self._names.cluster,
            broker_name=self._names.broker_name,
            broker_id=self._figures.broker_id,
            epoch_list=entries,
            max_offset=self._figures.end_offset,
        )
        return RemotingCommand.response(command, body=body.encode())

    async def begin_hand_over(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90192: let a slave have the whole log, before it is elected. Writes are refused for so long.

        Raises:
            InvalidRequestError: This broker is not the master, or the pause is out of its range.
            BrokerBusyError: Another one is under way.
        """
        header, hand_over = command.header(ReplicaHandOverHeader), self._figures.hand_over
        if hand_over is None:
            raise InvalidRequestError("this broker is not the master")
        if not 0 < header.pause_ms <= PAUSE_MS_MAX:
            raise InvalidRequestError("a pause of 1 to 10000 ms is needed", pause_ms=header.pause_ms)
        logger.warning(
            "writes are refused for a switch to=%d pause_ms=%d from=%s",
            header.broker_id,
            header.pause_ms,
            connection.remote_address,
        )
        last = self._figures.epochs.last
        self._noticed(1 if last is None else last.epoch + 1)
        has_all = await hand_over.begin(header.broker_id, pause_ms=header.pause_ms)
        answer = ReplicaHandOverAnswer(has_all=has_all, end_offset=self._figures.end_offset)
        return RemotingCommand.response(command, body=msgspec.json.encode(answer))

    def notify_role_changed(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """1008: there may be another master. The controllers are asked who it is; the notice itself changes nothing."""
        header = command.header(NotifyBrokerRoleChangedRequestHeader)
        logger.info(
            "notice of a controller epoch=%s master=%s from=%s",
            header.master_epoch,
            header.master_broker_id,
            connection.remote_address,
        )
        if header.master_epoch is not None:
            self._noticed(header.master_epoch)
        return RemotingCommand.response(command)
