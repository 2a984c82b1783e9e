"""Logic queues: the queues of a static topic, numbered once for a whole cluster, and where their offsets lie.

A static topic has logic queues 0, 1, ... that belong to no broker. Each is a list of items, oldest first; an item is a
physical queue on some broker and the offset of the logic queue at which it begins. The last item is the leader's, the
only one that is written to.

    offset of the logic queue      0 ........ 41      | 10000 ....... 10099     | 20000 ...
    item                           gen 0              | gen 1                   | gen 2
    physical queue                 broker-a, 3: 0..41 | broker-b, 0: 0..99      | broker-a, 4: 0...

Rules
  - A static offset is the physical one plus `logic_offset - start_offset`; `start_offset` is 0 in all that tools make.
  - The offset at which a new leader begins is decided after it has become the leader: until then it is -1, what is
    written to it is answered with offset -1, and readers stay in the items before it.
  - Offsets between two items belong to the earlier one, in which nothing is found there.
  - Clients name a logic queue by a broker that does not exist (`virtual_broker_name`), and learn from the route which
    broker is its leader. Two brokers that both say they lead a queue: the newer epoch is right.
Items are not changed in place. Pure: no socket, no clock.
Source: remoting/protocol/statictopic/*.java, remoting/rpc/ClientMetadata.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thermocline.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail, TopicQueueMappingInfo
from thermocline.remoting.offsets import QueueOffset

GLOBAL_SCOPE = "__global__"
UNDECIDED = QueueOffset(-1)
VIRTUAL_BROKER_PREFIX = "__syslo__"
NO_BROKER = "__syslo__none__"
"""The leader of a logic queue that no broker says it leads."""

Items = Sequence[LogicQueueMappingItem]


def virtual_broker_name(scope: str) -> str:
    """The broker by which clients name the logic queues of a scope."""
    return VIRTUAL_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def is_virtual_broker(name: str) -> bool:
    """Whether a broker's name stands for logic queues."""
    return name.startswith(VIRTUAL_BROKER_PREFIX)


# -- one item ----------------------------------------------------------------------------------------------------------


def is_decided(item: LogicQueueMappingItem) -> bool:
    """Whether it is known at which offset of the logic queue the item begins."""
    return item.logic_offset >= 0


def static_offset(item: LogicQueueMappingItem, queue_offset: QueueOffset) -> QueueOffset:
    """The logic queue's offset of one of the physical queue; the item's first for offsets below its start."""
    assert is_decided(item)
    return item.logic_offset + max(0, queue_offset - item.start_offset)


def static_offset_if_decided(item: LogicQueueMappingItem, queue_offset: QueueOffset) -> QueueOffset:
    """The same for answers to senders: -1 while the item is undecided, and never beyond an end that it names."""
    if not is_decided(item):
        return UNDECIDED
    if item.start_offset <= item.end_offset < queue_offset:
        queue_offset = item.end_offset
    return static_offset(item, queue_offset)


def physical_queue_offset(item: LogicQueueMappingItem, offset: QueueOffset) -> QueueOffset:
    """The physical queue's offset of one of the logic queue; below the item's start for offsets before the item."""
    return offset - item.logic_offset + item.start_offset


def static_end(item: LogicQueueMappingItem) -> QueueOffset:
    """The logic queue's offset behind the item, as far as the item itself says it: else where the item begins."""
    return item.logic_offset + max(0, item.end_offset - item.start_offset)


# -- the items of one logic queue --------------------------------------------------------------------------------------


def find_item(items: Items, offset: QueueOffset) -> LogicQueueMappingItem | None:
    """The decided item that holds an offset: the newest that begins at or before it, else the first."""
    decided = [item for item in items if is_decided(item)]
    return next((item for item in reversed(decided) if item.logic_offset <= offset), next(iter(decided), None))


def newest_decided(items: Items) -> LogicQueueMappingItem | None:
    """The last item of which it is known where it begins."""
    return next((item for item in reversed(items) if is_decided(item)), None)


def item_after(items: Items, item: LogicQueueMappingItem) -> LogicQueueMappingItem | None:
    """The item that follows, when it is decided; None for the last, and in front of an undecided one."""
    following = next((other for other in items if other.gen > item.gen), None)
    return following if following is not None and is_decided(following) else None


# -- a broker's mapping ------------------------------------------------------------------------------------------------


def led_queues(detail: TopicQueueMappingDetail) -> dict[int, int]:
    """Logic queue -> physical queue, of those that the mapping's own broker leads."""
    return {
        queue_id: items[-1].queue_id
        for queue_id, items in detail.hosted_queues.items()
        if items and items[-1].broker_name == detail.broker_name
    }


def mapping_info(detail: TopicQueueMappingDetail) -> TopicQueueMappingInfo:
    """The part of a mapping that NameServers receive."""
    return TopicQueueMappingInfo(
        broker_name=detail.broker_name,
        curr_id_map=led_queues(detail),
        epoch=detail.epoch,
        scope=detail.scope,
        topic=detail.topic,
        total_queues=detail.total_queues,
    )


def leaders(infos: Mapping[str, TopicQueueMappingInfo]) -> dict[tuple[str, int], str]:
    """(virtual broker, logic queue) -> name of its leader, from all brokers' mappings of one topic in a route.

    Every queue that the newest mappings count is there, with `NO_BROKER` when it has no leader.
    """
    found: dict[tuple[str, int], str] = {}
    by_scope: dict[str, list[TopicQueueMappingInfo]] = {}
    for info in infos.values():
        if info.scope is not None:
            by_scope.setdefault(info.scope, []).append(info)
    for scope, those in by_scope.items():
        newest_epoch = max(info.epoch for info in those)
        count = max(info.total_queues for info in those if info.epoch == newest_epoch)
        names = {
            queue_id: info.broker_name or NO_BROKER
            for info in sorted(those, key=lambda info: info.epoch)
            for queue_id in info.curr_id_map
        }
        name = virtual_broker_name(scope)
        found |= {(name, queue_id): names.get(queue_id, NO_BROKER) for queue_id in range(count)}
    return found
