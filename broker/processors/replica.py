"""Requests about replicas.

    907 GET_BROKER_HA_STATUS    908 RESET_MASTER_FLUSH_OFFSET    1007 GET_BROKER_EPOCH_CACHE
    1008 NOTIFY_BROKER_ROLE_CHANGED    90190 TOPIC_INCARNATIONS    90191 REPLICA_SOURCE    90192 REPLICA_HAND_OVER

908 concerns replicas only: a master takes it and does nothing, as RocketMQ's. 1007, 1008 and 90192 concern
brokers of a controller (controlled/controlled_processor.py); another one takes 1008 and does nothing.
Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from thermocline.remoting.bodies import HARuntimeInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import BrokerBusyError, InvalidRequestError, MQError, ServiceUnavailableError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.private_requests import PrivateRequestCode, ReplicaSourceAnswer
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

BUSY_ON_SLAVE = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)

WRITES = frozenset({*BUSY_ON_SLAVE, RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE})
"""All that a slave refuses."""


class ReplicaProcessor:
    """Serves what tools ask about replicas."""

    def __init__(
        self,
        *,
        store: MessageStore,
        runtime_info: Callable[[], HARuntimeInfo],
        owns_ledger: Callable[[], bool],
        has_claimed: Callable[[], bool],
        waiting_offset: Callable[[], PhysicalOffset | None],
    ) -> None:
        """`owns_ledger`, `has_claimed`: see ColdTier. `waiting_offset`: see DeletionGate."""
        self._store = store
        self._runtime_info = runtime_info
        self._owns_ledger = owns_ledger
        self._has_claimed = has_claimed
        self._waiting_offset = waiting_offset

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.get_status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_flush_offset,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.notify_role_changed,
            PrivateRequestCode.TOPIC_INCARNATIONS: self.get_incarnations,
            PrivateRequestCode.REPLICA_SOURCE: self.get_source,
            PrivateRequestCode.REPLICA_HAND_OVER: self.begin_hand_over,
        }

    def get_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """907: how far replicas are."""
        return RemotingCommand.response(command, body=self._runtime_info().encode())

    def reset_flush_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """908: nothing to do for a master."""
        return RemotingCommand.response(command)

    def get_epochs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """1007: this broker has no controller."""
        raise MQError("this request only for controllerMode ")

    def notify_role_changed(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """1008: nothing to do without a controller."""
        return RemotingCommand.response(command)

    def begin_hand_over(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90192: this broker has no controller."""
        raise InvalidRequestError("this broker has no controller that could elect another one")

    def get_incarnations(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90190: where in the log each topic began, which a slave has to know before it dispatches the log."""
        return RemotingCommand.response(command, body=self._store.incarnations.encode())

    def get_source(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90191: whose ledger this broker writes, and from where on its slaves have to keep the log."""
        waiting_offset, log_end = self._waiting_offset(), self._store.commit_log.append_offset
        answer = ReplicaSourceAnswer(
            store_uuid=self._store.identity.store_id if self._owns_ledger() else "",
            has_ledger=self._has_claimed(),
            held_offset=log_end if waiting_offset is None else waiting_offset,
            log_end=log_end,
        )
        return RemotingCommand.response(command, body=msgspec.json.encode(answer))


class SlaveProcessor:
    """What a slave refuses: it stands before all others. Its log is the copy of its master's.

    Sends are answered as RocketMQ's slave answers them; so are requests of POP, which puts messages of its own, but
    while it stands in for its master (broker/acting/acting_pop_requests.py).
    broker/pulls/replica_reads.py decides on pulls.
    Source: rejectRequest of SendMessageProcessor.java, EndTransactionProcessor.java, RecallMessageProcessor.java,
    Apache RocketMQ 5.5.
    """

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            **dict.fromkeys(BUSY_ON_SLAVE, self.refuse),
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RECALL_MESSAGE: self.recall,
            PrivateRequestCode.TTL_SET: self.set_ttl,
            PrivateRequestCode.FLUSHED_RANGES: self.flushed_ranges,
        }

    def refuse(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Sends, POP."""
        raise BrokerBusyError("[REJECTREQUEST]system busy, start flow control for a while")

    def flushed_ranges(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """90160: a stream has perhaps read more at the master, whose ledger and store it belongs to."""
        raise BrokerBusyError("a slave cannot say how far its master's queues are durable")

    def end_transaction(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """37: transactions end on the master."""
        return RemotingCommand.response(command, code=ResponseCode.SLAVE_NOT_AVAILABLE)

    def recall(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """370: timed messages wait on the master."""
        return RemotingCommand.response(
            command, code=ResponseCode.SLAVE_NOT_AVAILABLE, remark="recall failed, broker service not available"
        )

    def set_ttl(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """90105: its master's next table would undo it, and what had expired for good would be there again."""
        raise ServiceUnavailableError("a slave has its master's times to live: change it at the master")
