"""Queue lock requests: 41 LOCK_BATCH_MQ, 42 UNLOCK_BATCH_MQ (rules: broker/tables/queue_locks.py).

Source: broker/processor/AdminBrokerProcessor.java (lockBatchMQ, unlockBatchMQ), Apache RocketMQ 5.3.
"""

from collections.abc import Mapping

from thermocline.broker.tables import QueueLocks
from thermocline.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.request_code import RequestCode


class LockProcessor:
    """Serves the locks of orderly consumers."""

    def __init__(self, *, locks: QueueLocks) -> None:
        self._locks = locks

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """41: lock or renew; the answer names the queues that the client has now."""
        body = LockBatchRequestBody.decode(command.body)
        locked = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response(command, body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())

    def unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """42: give locks up."""
        body = LockBatchRequestBody.decode(command.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response(command)
