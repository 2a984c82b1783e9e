"""FakePops: POP consumption of one fake broker: pop with long polling, acknowledgements, invisible times, order.

What is not acknowledged comes back after its invisible time, in the group's retry topic of the topic, or as a dead
letter after the group's `retry_max_times`. Retry topics are read last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from thermocline.client.testing.fake_store import StoredMessage
from thermocline.remoting.bit_set import decode_bit_set
from thermocline.remoting.bodies import (
    BatchAckMessageRequestBody,
    MessageRequestModes,
    SetMessageRequestModeRequestBody,
    TopicConfig,
)
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.handles import (
    ORDER_REVIVE_QUEUE_ID,
    PoppedOffsets,
    ReceiptHandle,
    flagged_topic,
    message_offset_info,
    normal_topic,
    pop_retry_topic_v1,
    retry_flag,
    start_offset_info,
)
from thermocline.remoting.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import dlq_topic, is_retry_topic

if TYPE_CHECKING:
    from thermocline.client.testing.fake_node import FakeNode

__all__ = ["FakePops"]

REVIVE_QUEUE_ID = 0
Key: TypeAlias = "tuple[str, str, int, int, int]"
"""Topic, group, queue id, offset, pop time."""


@dataclass(slots=True, eq=False)
class _WaitingPop:
    connection: Connection
    command: RemotingCommand
    header: PopMessageRequestHeader
    timer: asyncio.TimerHandle


@dataclass(slots=True, eq=False)
class _Batch:
    """What was popped in order from one queue and is not acknowledged yet."""

    start_offset: int
    opened: set[QueueOffset] = field(default_factory=set)


class FakePops:
    """Part of a fake node; `served` names the requests."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._held: dict[Key, asyncio.Handle] = {}
        self._ordered: dict[tuple[str, str, int], _Batch] = {}
        self._waiting: list[_WaitingPop] = []
        self.modes = MessageRequestModes()
        self.served: dict[int, Callable[[Connection, RemotingCommand], RemotingCommand | None]] = {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._get_modes,
        }

    def close(self) -> None:
        """Stop every timer."""
        for timer in (*self._held.values(), *(waiting.timer for waiting in self._waiting)):
            timer.cancel()
        self._held.clear()
        self._waiting.clear()

    def connection_closed(self, connection: Connection) -> None:
        """Drop the POPs that wait on this connection."""
        for waiting in [waiting for waiting in self._waiting if waiting.connection is connection]:
            waiting.timer.cancel()
            self._waiting.remove(waiting)

    def wake(self) -> None:
        """Something was stored: POPs that wait look again."""
        for waiting in list(self._waiting):
            answer = self._try_pop(waiting.command, waiting.header)
            if answer.code == ResponseCode.SUCCESS:
                waiting.timer.cancel()
                self._waiting.remove(waiting)
                waiting.connection.send(answer)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _pop(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(PopMessageRequestHeader)
        self._node.store.topic(header.topic)
        self._node.find_group(header.consumer_group)
        answer = self._try_pop(command, header)
        if answer.code == ResponseCode.SUCCESS or header.poll_time <= 0:
            return answer
        waiting = _WaitingPop(connection, command, header, _no_timer())
        waiting.timer = asyncio.get_running_loop().call_later(header.poll_time / 1000, self._end, waiting)
        self._waiting.append(waiting)
        return None

    def _ack(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(AckMessageRequestHeader)
        receipt = ReceiptHandle.parse(header.extra_info)
        self._done(header.topic, header.consumer_group, header.queue_id, header.offset, receipt.pop_time_ms)
        return RemotingCommand.response(command)

    def _ack_batch(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        for ack in BatchAckMessageRequestBody.decode(command.body).acks:
            topic = flagged_topic(ack.topic, ack.consumer_group, int(ack.retry))
            for bit in decode_bit_set(ack.bits):
                self._done(topic, ack.consumer_group, ack.queue_id, ack.start_offset + bit, ack.pop_time_ms)
        return RemotingCommand.response(command)

    def _change(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(ChangeInvisibleTimeRequestHeader)
        receipt = ReceiptHandle.parse(header.extra_info)
        now_ms = self._node.clock_ms()
        key = header.topic, header.consumer_group, header.queue_id, header.offset, receipt.pop_time_ms
        pop_time_ms = receipt.pop_time_ms if receipt.is_order else max(now_ms, receipt.pop_time_ms + 1)
        timer = self._held.pop(key, None)
        if timer is not None:
            timer.cancel()
            self._hold((*key[:4], pop_time_ms), header.invisible_time)
        return RemotingCommand.response(
            command,
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=pop_time_ms,
                invisible_time=header.invisible_time + (now_ms - pop_time_ms if receipt.is_order else 0),
                revive_qid=receipt.revive_queue_id,
            ),
        )

    def _set_mode(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        mode = SetMessageRequestModeRequestBody.decode(command.body)
        self._node.store.topic(mode.topic)
        self.modes.message_request_mode_map.setdefault(mode.topic, {})[mode.consumer_group] = mode
        return RemotingCommand.response(command)

    def _get_modes(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, body=self.modes.encode())

    # -- inside ------------------------------------------------------------------------------------------------------

    def _try_pop(self, command: RemotingCommand, header: PopMessageRequestHeader) -> RemotingCommand:
        store, group = self._node.store, header.consumer_group
        codes = parse_subscription(header.topic, header.exp, expression_type=header.exp_type).code_set
        topics = [header.topic]
        retry_topic = pop_retry_topic_v1(header.topic, group)
        if retry_topic in store.topics and not header.order:
            topics.append(retry_topic)
        pop_time_ms = self._node.clock_ms()
        popped: list[PoppedOffsets] = []
        records: list[bytes] = []
        rest = 0
        for name in topics:
            for queue_id, queue in enumerate(store.topic(name).queues):
                offset = self._offset(name, group, queue_id, header.init_mode)
                if header.order and (group, name, queue_id) in self._ordered:
                    continue
                taken: list[StoredMessage] = []
                while offset < len(queue) and len(records) + len(taken) < header.max_msg_nums:
                    if not codes or queue[offset].tags_code in codes:
                        taken.append(queue[offset])
                    offset += 1
                rest += len(queue) - offset
                offsets = tuple(stored.queue_offset for stored in taken)
                is_ordered = header.order and bool(taken)
                store.consumer_offsets[group, name, queue_id] = offsets[0] if is_ordered else offset
                if not taken:
                    continue
                flag = retry_flag(name)
                popped.append(
                    PoppedOffsets(retry_flag=flag, queue_id=queue_id, start_offset=offsets[0], offsets=offsets)
                )
                records += [stored.record for stored in taken]
                if header.order:
                    self._ordered[group, name, queue_id] = _Batch(offsets[0], set(offsets))
                for each in offsets:
                    self._hold((name, group, queue_id, each, pop_time_ms), header.invisible_time)
        return RemotingCommand.response(
            command,
            ResponseCode.SUCCESS if records else ResponseCode.POLLING_TIMEOUT,
            remark="FOUND" if records else "NO_MESSAGE_IN_QUEUE",
            header=PopMessageResponseHeader(
                pop_time=pop_time_ms,
                invisible_time=header.invisible_time,
                revive_qid=ORDER_REVIVE_QUEUE_ID if header.order else REVIVE_QUEUE_ID,
                rest_num=rest,
                start_offset_info=start_offset_info(popped),
                msg_offset_info=message_offset_info(popped),
            ),
            body=b"".join(records),
        )

    def _offset(self, topic: str, group: str, queue_id: int, init_mode: int) -> QueueOffset:
        store = self._node.store
        offset = store.consumer_offsets.get((group, topic, queue_id))
        if offset is not None:
            return offset
        held = store.topic(topic)
        if init_mode == 0 or is_retry_topic(topic):
            return held.min_offset(queue_id)
        return QueueOffset(max(0, len(held.queues[queue_id]) - 1))

    def _end(self, waiting: _WaitingPop) -> None:
        self._waiting.remove(waiting)
        waiting.connection.send(self._try_pop(waiting.command, waiting.header))

    def _hold(self, key: Key, invisible_ms: int) -> None:
        """Take a message back at the time that its receipt names, or at once where that has passed."""
        self._wait(key, max(self._node.clock_ms(), key[4]) + max(0, invisible_ms))

    def _wait(self, key: Key, due_ms: int) -> None:
        """Take a message back at `due_ms` of the clock. A timer counts from the begin of the loop's turn, so it may
        ring some ms early: the clock is read again.
        """
        rest_ms = due_ms - self._node.clock_ms()
        loop = asyncio.get_running_loop()
        self._held[key] = (
            loop.call_later(rest_ms / 1000, self._wait, key, due_ms)
            if rest_ms > 0
            else loop.call_soon(self._come_back, key)
        )

    def _done(self, topic: str, group: str, queue_id: int, offset: QueueOffset, pop_time_ms: int) -> None:
        timer = self._held.pop((topic, group, queue_id, offset, pop_time_ms), None)
        if timer is None:
            return
        timer.cancel()
        batch = self._ordered.get((group, topic, queue_id))
        if batch is not None and offset in batch.opened:
            last = max(batch.opened)
            batch.opened.discard(offset)
            following = min(batch.opened, default=last + 1)
            self._node.store.consumer_offsets[group, topic, queue_id] = following
            if not batch.opened:
                del self._ordered[group, topic, queue_id]
                self.wake()

    def _come_back(self, key: Key) -> None:
        topic, group, queue_id, offset, _ = key
        del self._held[key]
        if self._ordered.pop((group, topic, queue_id), None) is not None:
            self.wake()
            return
        store = self._node.store
        record = store.topic(topic).queues[queue_id][offset].decode()
        is_dead = record.reconsume_times >= self._node.find_group(group).retry_max_times
        target = dlq_topic(group) if is_dead else pop_retry_topic_v1(normal_topic(topic, group), group)
        if target not in store.topics:
            store.create_topic(TopicConfig(topic_name=target, read_queue_nums=1, write_queue_nums=1))
        properties = record.properties
        properties.setdefault(PropertyName.FIRST_POP_TIME, str(key[4]))
        store.append(
            target,
            0,
            body=record.body,
            properties_text=encode_properties(properties),
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            flag=record.flag,
            sys_flag=record.sys_flag,
            reconsume_times=record.next_reconsume_times,
        )
        self.wake()


def _no_timer() -> asyncio.TimerHandle:
    """A timer that has nothing to do, until there is the real one."""
    timer = asyncio.get_running_loop().call_later(0, lambda: None)
    timer.cancel()
    return timer
