"""Queue lock requests: 41 LOCK_BATCH_MQ, 42 UNLOCK_BATCH_MQ (rules: broker/tables/queue_locks.py).

Source: broker/processor/AdminBrokerProcessor.java (lockBatchMQ, unlockBatchMQ), Apache RocketMQ 5.3.
"""

from collections.abc import Mapping

from thermocline.broker.tables import QueueLocks, check_names
from thermocline.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.request_code import RequestCode

NAME_CHARACTERS_MAX = 255


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
        check_names(body.consumer_group, body.client_id)
        for queue in body.mq_set:
            if max(len(queue.topic), len(queue.broker_name)) > NAME_CHARACTERS_MAX:
                raise InvalidParameterError("the name of a queue's topic or broker is too long")
        locked = self._locks.lock(body.consumer_group, body.mq_set, body.client_id, connection.remote_host[0])
        return RemotingCommand.response(command, body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())

    def unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """42: give locks up."""
        body = LockBatchRequestBody.decode(command.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response(command)
