"""Acknowledges popped messages, and changes their invisible time.

    200051 ACK_MESSAGE          200151 BATCH_ACK_MESSAGE          200053 CHANGE_MESSAGE_INVISIBLETIME

Rules
  - An acknowledgement is in the log before it is answered, and durable where sends wait for the flush. At a slave that
    stands in, one of a message that was popped there is at another master (escaped_pops.py).
  - One that comes too late, or a second time, is answered with success: another consumer may have the message by then.
    It waits for the flush like the first one, which may not be durable yet.
  - A message of an ordered POP (revive queue 999): the group goes on behind what is acknowledged without a gap, and the
    queue is free with the last one. A receipt of an earlier POP is passed over.
  - A new invisible time makes a new receipt. For an ordered one the pop time stays, and the answer's invisible time is
    counted from it. Of a message that is not in flight any more nothing is kept: it came back, or was acknowledged.
  - One request acknowledges BATCH_MESSAGES_MAX messages at most, so that none keeps the loop for seconds.
Source: AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java, Apache RocketMQ 5.3; `suspend`: 5.5.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from thermocline.broker.pops import EscapedCheckPoint, EscapedPops, PopPolling
from thermocline.broker.processors import DEFAULT_REMARK
from thermocline.broker.processors.pops.pop import place_of
from thermocline.broker.queues import VisibleQueues
from thermocline.broker.sends import FlushedAnswers
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import ConsumerOffsets, TopicTable
from thermocline.pop.in_flight import Pending
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.bit_set import decode_bit_set
from thermocline.remoting.bodies import BatchAck, BatchAckMessageRequestBody, TopicConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Answer, Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import (
    BrokerBusyError,
    InvalidRequestError,
    MessageIllegalError,
    ResponseError,
    TopicNotFoundError,
)
from thermocline.remoting.handles import ORDER_REVIVE_QUEUE_ID, ReceiptHandle, RetryFlag, flagged_topic
from thermocline.remoting.headers.read import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

BATCH_MESSAGES_MAX = 32 * 1_024
FAQ_TEXT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class AckProcessor:
    """Serves acknowledgements of popped messages."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        pops: PopStore,
        escaped: EscapedPops | None,
        stats: BrokerStats,
        visible: VisibleQueues,
        clock: Callable[[], int],
        answers: FlushedAnswers,
        polling: PopPolling,
        notifications: PopPolling,
    ) -> None:
        """`escaped`: of a slave. `polling`, `notifications`: what waits for a queue that an acknowledgement may
        free."""
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._pops = pops
        self._escaped = escaped
        self._stats = stats
        self._visible = visible
        self._clock = clock
        self._answers = answers
        self._pollings = (polling, notifications)

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
        }

    def ack(self, connection: Connection, command: RemotingCommand) -> Answer:
        """200051: one message was consumed."""
        self._answers.check_room(connection)
        header = command.header(AckMessageRequestHeader)
        self._check_queue(header.topic, header.queue_id, connection)
        least, end = self._range(header.topic, header.queue_id)
        if not least <= header.offset <= end:
            raise ResponseError(
                code=ResponseCode.NO_MESSAGE,
                remark=f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, "
                f"store:{least}~{end}",
            )
        receipt = ReceiptHandle.parse(header.extra_info)
        if receipt.is_order:
            end_offset = self._ack_in_order(
                header.topic, header.consumer_group, header.queue_id, header.offset, receipt.pop_time_ms, connection
            )
        else:
            self._stats.add_ack(header.topic, header.consumer_group, 1)
            pending = self._find_named(header.topic, header.consumer_group, header.queue_id, receipt)
            wanted = [] if pending is None else [(pending, [header.offset])]
            if any(isinstance(each, EscapedCheckPoint) for each, _ in wanted):
                response = RemotingCommand.response(command)
                return self._ack_elsewhere(connection, response, wanted, end_offset=LOG_START)
            end_offset = self._pops.ack(wanted)
        return self._acknowledged(connection, RemotingCommand.response(command), end_offset)

    def ack_batch(self, connection: Connection, command: RemotingCommand) -> Answer:
        """200151: several messages were consumed, also of several check points."""
        self._answers.check_room(connection)
        acks = BatchAckMessageRequestBody.decode(command.body).acks if command.body else []
        if not acks:
            return RemotingCommand.response(command, ResponseCode.NO_MESSAGE)
        response = RemotingCommand.response(command)
        end_offset = LOG_START
        wanted: list[tuple[Pending, list[QueueOffset]]] = []
        for ack, bits in zip(acks, _bits_of(acks), strict=True):
            topic = _topic_of(ack)
            least, end = self._range(topic, ack.queue_id)
            offsets = [ack.start_offset + bit for bit in bits]
            offsets = [offset for offset in offsets if least <= offset <= end]
            if ack.revive_queue_id == ORDER_REVIVE_QUEUE_ID:
                for offset in offsets:
                    try:
                        order_end_offset = self._ack_in_order(
                            topic, ack.consumer_group, ack.queue_id, offset, ack.pop_time_ms, connection
                        )
                    except MessageIllegalError as error:  # the others count all the same, as in RocketMQ
                        response = error_response(command, error)
                    else:
                        end_offset = max(end_offset, order_end_offset)
            elif offsets:
                self._stats.add_ack(topic, ack.consumer_group, len(offsets))
                pending = self._find(topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time_ms)
                if pending is not None:
                    wanted.append((pending, offsets))
        if any(isinstance(each, EscapedCheckPoint) for each, _ in wanted):
            return self._ack_elsewhere(connection, response, wanted, end_offset=end_offset)
        return self._acknowledged(connection, response, max(end_offset, self._pops.ack(wanted)))

    def change_invisible_time(self, connection: Connection, command: RemotingCommand) -> Answer:
        """200053: a message is to come back at another time; the answer says what makes the new receipt."""
        self._answers.check_room(connection)
        header = command.header(ChangeInvisibleTimeRequestHeader)
        self._check_queue(header.topic, header.queue_id, connection)
        least, end = self._range(header.topic, header.queue_id)
        if not least <= header.offset < end:
            return RemotingCommand.response(command, ResponseCode.NO_MESSAGE, remark=DEFAULT_REMARK)
        receipt = ReceiptHandle.parse(header.extra_info)
        if receipt.is_order:
            return self._change_in_order(connection, command, header, receipt)
        pops = self._pops
        answer = ChangeInvisibleTimeResponseHeader(
            pop_time=self._clock(),
            invisible_time=header.invisible_time,
            revive_qid=receipt.revive_queue_id,
        )
        end_offset = LOG_START
        pending = self._find_named(header.topic, header.consumer_group, header.queue_id, receipt)
        if pending is not None and pending.is_acked(header.offset) is False:
            if self._escaped is not None:
                return self._renew_elsewhere(self._escaped, command, header, pending)
            claim = pops.renew(
                pending,
                header.offset,
                invisible_ms=max(0, header.invisible_time),
                is_suspended=header.suspend,
            )
            answer.pop_time, answer.revive_qid = claim.pop_time_ms, claim.revive_queue_id
            end_offset = claim.end_offset
            self._stats.add_ack(header.topic, header.consumer_group, 1)
        response = RemotingCommand.response(command, header=answer, remark=DEFAULT_REMARK)
        return self._answers.answer(connection, response, end_offset=end_offset)

    # -- at a slave that stands in -------------------------------------------------------------------------------------

    async def _ack_elsewhere(
        self,
        connection: Connection,
        response: RemotingCommand,
        wanted: Sequence[tuple[Pending, Sequence[QueueOffset]]],
        *,
        end_offset: PhysicalOffset,
    ) -> RemotingCommand | None:
        assert self._escaped is not None
        end_offset = max(
            end_offset,
            self._pops.ack([(each, offsets) for each, offsets in wanted if not isinstance(each, EscapedCheckPoint)]),
        )
        await self._escaped.ack([(each, offsets) for each, offsets in wanted if isinstance(each, EscapedCheckPoint)])
        return self._answers.answer(connection, response, end_offset=end_offset)

    async def _renew_elsewhere(
        self,
        escaped: EscapedPops,
        command: RemotingCommand,
        header: ChangeInvisibleTimeRequestHeader,
        pending: Pending,
    ) -> RemotingCommand | None:
        claim = await escaped.renew(
            pending, header.offset, invisible_ms=max(0, header.invisible_time), is_suspended=header.suspend
        )
        self._stats.add_ack(header.topic, header.consumer_group, 1)
        answer = ChangeInvisibleTimeResponseHeader(
            pop_time=claim.pop_time_ms, invisible_time=header.invisible_time, revive_qid=claim.revive_queue_id
        )
        return RemotingCommand.response(command, header=answer, remark=DEFAULT_REMARK)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _acknowledged(
        self, connection: Connection, response: RemotingCommand, end_offset: PhysicalOffset
    ) -> RemotingCommand | None:
        """The answer; None when it waits. `end_offset`: of what was put; 0 when all was acknowledged before."""
        end_offset = end_offset or self._store.commit_log.append_offset
        return self._answers.answer(connection, response, end_offset=end_offset)

    def _check_queue(self, topic: str, queue_id: int, connection: Connection) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError(f"topic[{topic}] not exist, apply first please! {FAQ_TEXT}")
        if not 0 <= queue_id < config.read_queue_nums:
            raise MessageIllegalError(
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queue_nums}] "
                f"consumer:[{connection.remote_address}]"
            )
        return config

    def _range(self, topic: str, queue_id: int) -> tuple[QueueOffset, QueueOffset]:
        """The queue's first offset as far as it is known here, and its end."""
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return QUEUE_START, QUEUE_START
        is_known = self._visible.cold_start(queue) is not None
        return self._visible.near_minimum(queue) if is_known else QUEUE_START, self._visible.end(queue)

    def _find_named(self, topic: str, group: str, queue_id: int, receipt: ReceiptHandle) -> Pending | None:
        return self._find(topic, group, queue_id, receipt.start_offset, receipt.pop_time_ms)

    def _find(
        self, topic: str, group: str, queue_id: int, start_offset: QueueOffset, pop_time_ms: int
    ) -> Pending | None:
        """The check point that a receipt names; None when it is not in flight any more.

        Raises:
            BrokerBusyError: It is the master's, which is back.
        """
        key = topic, group, queue_id, start_offset, pop_time_ms, self._pops.log.broker_name
        pending = self._pops.in_flight.find(key)
        if pending is None and self._escaped is not None:
            pending = self._escaped.find(key)
            if pending is None:
                self._check_open()
        return pending

    def _check_open(self) -> None:
        """Pass at a master, and at a slave that stands in.

        Raises:
            BrokerBusyError: The master is back.
        """
        if self._escaped is not None and not self._escaped.is_open:
            raise BrokerBusyError("the master is back, ask it")

    def _ack_in_order(
        self, topic: str, group: str, queue_id: int, offset: QueueOffset, pop_time_ms: int, connection: Connection
    ) -> PhysicalOffset:
        """Note a message of an ordered POP as consumed; the end offset of what was put, 0 for nothing."""
        self._check_open()
        self._offsets.check_writable(group)
        pops = self._pops
        committed = self._offsets.query(topic, group, queue_id)
        info = pops.orders.find(topic, group, queue_id)
        if committed is None and info is None:
            # It has popped nothing here since the queue or its offsets were deleted: it would skip messages.
            return LOG_START
        if committed is not None and offset < committed:
            return LOG_START
        if info is None:
            # Cleaned away, or of a POP before a reset: further on it would skip messages without acknowledgement.
            if offset != committed:
                return LOG_START
            next_offset = offset + 1
        elif info.pop_time_ms != pop_time_ms:
            logger.warning(
                "acknowledgement of an earlier POP passed over topic=%s group=%s queue_id=%d offset=%d",
                topic,
                group,
                queue_id,
                offset,
            )
            return LOG_START
        elif offset not in info.offsets:
            key = f"{topic}@{group}@{queue_id}"
            old = -1 if committed is None else committed
            raise MessageIllegalError(
                f"offset is illegal, key:{key}, old:{old}, commit:{offset}, next:-1, {connection.remote_address}"
            )
        else:
            info = replace(info, acked_bits=info.acked_bits | 1 << info.offsets.index(offset))
            next_offset = info.next_offset
        if self._offsets.has_reset(topic, group, queue_id):
            next_offset = committed if committed is not None else next_offset
        end_offset = pops.order_changed(topic, group, queue_id, info, next_offset=next_offset, is_ack=True)
        self._stats.add_ack(topic, group, 1)
        if info is None or not info.is_blocking(self._clock()):
            self._wake(topic, group, queue_id)
        return end_offset

    def _change_in_order(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: ChangeInvisibleTimeRequestHeader,
        receipt: ReceiptHandle,
    ) -> RemotingCommand | None:
        self._check_open()
        pops = self._pops
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        now = self._clock()
        visible_ms = min(now + max(0, header.invisible_time), LONG_MAX)
        committed = self._offsets.query(topic, group, queue_id)
        info = pops.orders.find(topic, group, queue_id)
        end_offset = LOG_START
        if committed is not None and header.offset < committed:
            answer = ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
        else:
            answer = ChangeInvisibleTimeResponseHeader(
                pop_time=receipt.pop_time_ms,
                invisible_time=visible_ms - receipt.pop_time_ms,
                revive_qid=receipt.revive_queue_id,
            )
            if info is not None and info.pop_time_ms == receipt.pop_time_ms and header.offset in info.offsets:
                info = replace(info, visible_ms={**info.visible_ms, header.offset: visible_ms})
                next_offset = info.next_offset if committed is None else committed
                end_offset = pops.order_changed(topic, group, queue_id, info, next_offset=next_offset)
                for polling in self._pollings:
                    polling.wake_at(place_of(topic, group, queue_id), info.free_ms)
                    polling.wake_at(place_of(topic, group, -1), info.free_ms)
        response = RemotingCommand.response(command, header=answer, remark=DEFAULT_REMARK)
        return self._answers.answer(connection, response, end_offset=end_offset)

    def _wake(self, topic: str, group: str, queue_id: int) -> None:
        """A queue is free: wake one waiter for it and one for any queue, among POPs and among notifications."""
        for polling in self._pollings:
            polling.wake(place_of(topic, group, queue_id))
            polling.wake(place_of(topic, group, -1))


def _bits_of(acks: Sequence[BatchAck]) -> list[list[int]]:
    """The bit numbers of each.

    Raises:
        InvalidRequestError: One cannot be read, or they are too many.
    """
    bits: list[list[int]] = []
    count = 0
    for ack in acks:
        bits.append(decode_bit_set(ack.bits))
        count += 1 + len(bits[-1])
        if count > BATCH_MESSAGES_MAX:
            raise InvalidRequestError("too many messages are acknowledged at once", count_max=BATCH_MESSAGES_MAX)
    return bits


def _topic_of(ack: BatchAck) -> str:
    try:
        flag = RetryFlag(int(ack.retry))
    except ValueError as error:
        raise InvalidRequestError("getRetry fail, format is wrong", retry=ack.retry[:16]) from error
    return flagged_topic(ack.topic, ack.consumer_group, flag)
