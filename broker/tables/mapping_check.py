"""Mapping check: which mapping of a static topic may take the place of another.

    each list of items    generations and offsets rise, only the last item may be undecided, nothing is negative
    new against old       the epoch does not fall; the scope stays; with an equal epoch every list is there and has the
                          same leader; what an item said stays as it is, but for an offset that was undecided

Lists that the new mapping leaves out are kept: an ex-leader goes on knowing where its queue went.
Source: broker/topic/TopicQueueMappingManager.java (updateTopicQueueMapping), TopicQueueMappingUtils.java, Apache
RocketMQ 5.3.
"""

from __future__ import annotations

import itertools

import msgspec

from thermocline.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail
from thermocline.remoting.bodies.logic_queue import Items, is_decided, static_end
from thermocline.remoting.errors import InvalidRequestError


def check_items(items: Items) -> None:
    """Pass the items of one logic queue.

    Raises:
        InvalidRequestError: They contradict each other.
    """
    for item in items:
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            raise InvalidRequestError("The field is illegal, should not be negative")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise InvalidRequestError("The endOffset is smaller than the start offset")
        if not item.broker_name:
            raise InvalidRequestError("an item names its broker", gen=item.gen)
    for item, following in itertools.pairwise(items):
        if not is_decided(item):
            raise InvalidRequestError("The non-latest item has negative logic offset")
        if item.gen >= following.gen:
            raise InvalidRequestError("The gen does not increase monotonically")
        if is_decided(following) and static_end(item) >= following.logic_offset:
            raise InvalidRequestError("The base logic offset does not increase monotonically")


def succeed(
    old: TopicQueueMappingDetail | None, new: TopicQueueMappingDetail, *, force: bool
) -> TopicQueueMappingDetail:
    """The mapping that replaces the old one when `new` arrives; `force` ignores the old one's content.

    Raises:
        InvalidRequestError: It may not.
    """
    for items in new.hosted_queues.values():
        check_items(items)
    if old is None:
        return new
    merged = msgspec.structs.replace(new, hosted_queues={**old.hosted_queues, **new.hosted_queues})
    if force:
        return merged
    if new.epoch < old.epoch:
        raise InvalidRequestError(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise InvalidRequestError(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    is_same_epoch = new.epoch == old.epoch
    if is_same_epoch and old.hosted_queues.keys() - new.hosted_queues.keys():
        raise InvalidRequestError("Cannot accept equal epoch with null data")
    for queue_id, items in new.hosted_queues.items():
        _check_kept(old.hosted_queues.get(queue_id, []), items, is_same_epoch=is_same_epoch)
    return merged


def _check_kept(old: Items, new: Items, *, is_same_epoch: bool) -> None:
    """Pass items that say what the old ones said. Either may lack generations that the other has."""
    if not old:
        return
    if not new:
        raise InvalidRequestError("The new item list is null or empty")
    by_gen = {item.gen: item for item in old}
    for item in new:
        earlier = by_gen.get(item.gen)
        if earlier is not None and not _says_the_same(earlier, item):
            raise InvalidRequestError("an item of a logic queue does not change", gen=item.gen)
    if is_same_epoch and (old[-1].gen != new[-1].gen or not _is_same_queue(old[-1], new[-1])):
        raise InvalidRequestError("The new leader is different but epoch equal")


def _says_the_same(old: LogicQueueMappingItem, new: LogicQueueMappingItem) -> bool:
    return _is_same_queue(old, new) and (not is_decided(old) or old.logic_offset == new.logic_offset)


def _is_same_queue(old: LogicQueueMappingItem, new: LogicQueueMappingItem) -> bool:
    return (old.broker_name, old.queue_id, old.start_offset) == (new.broker_name, new.queue_id, new.start_offset)
