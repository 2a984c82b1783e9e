"""Requests about replicas, answered as by a master without any.

    907 GET_BROKER_HA_STATUS    908 RESET_MASTER_FLUSH_OFFSET    1007 GET_BROKER_EPOCH_CACHE
    90190 TOPIC_INCARNATIONS

908 concerns replicas only: a master takes it and does nothing, as RocketMQ's. 1007 concerns brokers of a controller.
Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.remoting.bodies import HARuntimeInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import MQError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.store.message_store import MessageStore


class ReplicaProcessor:
    """Serves what tools ask about replicas."""

    def __init__(self, *, store: MessageStore) -> None:
        self._store = store

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.get_status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_flush_offset,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
            PrivateRequestCode.TOPIC_INCARNATIONS: self.get_incarnations,
        }

    def get_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """907: how far replicas are."""
        body = HARuntimeInfo(master=True, master_commit_log_max_offset=self._store.commit_log.append_offset)
        return RemotingCommand.response(command, body=body.encode())

    def reset_flush_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """908: nothing to do for a master."""
        return RemotingCommand.response(command)

    def get_epochs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """1007: this broker has no controller."""
        raise MQError("this request only for controllerMode ")

    def get_incarnations(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90190: where in the log each topic began, which a slave has to know before it dispatches the log."""
        return RemotingCommand.response(command, body=self._store.incarnations.encode())
