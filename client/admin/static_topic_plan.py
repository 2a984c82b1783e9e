"""Static topic plans: the changes for each broker when a static topic is made, grown, or moved.

    present configurations and mappings of all brokers -> checks -> plan -> apply (static_topic_administration.py)

A plan is a JSON document, of the form in which RocketMQ's `mqadmin` writes its own:
    {"topic", "type": CREATE_OR_UPDATE or REMAPPING, "epoch", "brokerConfigMap": {broker: configuration with mapping},
     "brokerToMapIn": [...], "brokerToMapOut": [...]}

Rules
  - Every broker of the clusters in question has a mapping, if only an empty one, and all have one epoch: so a broker
    that missed a change is found by the next.
  - A new logic queue goes to the broker that leads fewest, as a new physical queue there: physical queues are never
    used twice. Where several lead as few, the topic's name says which comes first, so that topics spread.
  - A move gives each target broker its share, and moves no more queues than that takes: a broker gives or receives,
    never both.
  - A moved queue's new item is undecided in the plan; where it begins is found while the plan is applied.
Pure: no socket, no clock.
Source: remoting/protocol/statictopic/TopicQueueMappingUtils.java, TopicRemappingDetailWrapper.java, Apache RocketMQ
5.3.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
from msgspec import field

from thermocline.remoting.bodies import Body, LogicQueueMappingItem, TopicConfigAndMapping, TopicQueueMappingDetail
from thermocline.remoting.bodies.logic_queue import GLOBAL_SCOPE, UNDECIDED, Items, is_decided
from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError
from thermocline.remoting.json_dialect import dumps
from thermocline.remoting.offsets import QUEUE_START

__all__ = ["StaticTopicPlan", "block_after", "plan_growth", "plan_move"]

CREATE_OR_UPDATE = "CREATE_OR_UPDATE"
REMAPPING = "REMAPPING"
EPOCH_STEP = 1_000
BLOCK_SIZE = 10_000
"""A moved queue goes on at a multiple of it, RocketMQ's own: what is still on its way to the old one has room."""

Configs = Mapping[str, TopicConfigAndMapping]
"""Broker name -> its configuration of the topic."""


class StaticTopicPlan(Body, kw_only=True):
    """The changes for every broker; see the module."""

    topic: str = ""
    type: str = CREATE_OR_UPDATE
    epoch: int = 0
    broker_config_map: dict[str, TopicConfigAndMapping] = field(default_factory=dict)
    broker_to_map_in: list[str] = field(default_factory=list)
    broker_to_map_out: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        """Standard JSON."""
        return dumps(self)

    @property
    def moved(self) -> dict[int, Items]:
        """Logic queue -> its items, of those that a broker is to be given."""
        return {
            queue_id: items
            for name in self.broker_to_map_in
            for queue_id, items in mapping_of(self.broker_config_map[name]).hosted_queues.items()
            if items[-1].broker_name == name and items[-1].gen and not is_decided(items[-1])
        }


def mapping_of(config: TopicConfigAndMapping) -> TopicQueueMappingDetail:
    """The mapping in a broker's configuration.

    Raises:
        InvalidRequestError: It has none: to this broker the topic is an ordinary one.
    """
    if config.mapping_detail is None:
        raise InvalidRequestError("a broker has the topic as an ordinary one", topic=config.topic_name)
    return config.mapping_detail


def check(topic: str, configs: Configs) -> tuple[int, dict[int, Items]]:
    """Pass the mappings of all brokers that have one; their epoch, and each logic queue's items.

    Raises:
        InvalidRequestError: They contradict each other: a change has not reached every broker. Applying its plan again
            mends that.
    """
    epochs: set[int] = set()
    totals: set[int] = set()
    queues: dict[int, Items] = {}
    used: set[tuple[str | None, int]] = set()
    for name, config in configs.items():
        mapping = mapping_of(config)
        if mapping.broker_name != name or mapping.topic != topic or mapping.scope != GLOBAL_SCOPE or mapping.dirty:
            raise InvalidRequestError("a broker has a mapping that is not its own", topic=topic, broker=name)
        epochs.add(mapping.epoch)
        totals.add(mapping.total_queues)
        for queue_id, items in mapping.hosted_queues.items():
            if not items or items[-1].broker_name != name:
                continue
            if queue_id in queues:
                raise InvalidRequestError("two brokers lead one logic queue", topic=topic, queue_id=queue_id)
            if not is_decided(items[-1]):
                raise InvalidRequestError("a move has stopped half way", topic=topic, queue_id=queue_id)
            queues[queue_id] = items
            for item in items:
                place = (item.broker_name, item.queue_id)
                there = configs.get(item.broker_name or "")
                if place in used or there is None or not 0 <= item.queue_id < there.write_queue_nums:
                    raise InvalidRequestError("a physical queue is used twice, or not there", topic=topic, queue=place)
                used.add(place)
    if len(epochs) > 1 or len(totals) > 1:
        raise InvalidRequestError("a former change has not reached every broker", topic=topic, epochs=sorted(epochs))
    total = next(iter(totals), 0)
    if queues.keys() != set(range(total)):
        raise InvalidRequestError("a logic queue has no leader", topic=topic, total=total, led=sorted(queues))
    return next(iter(epochs), 0), queues


def plan_growth(
    topic: str,
    present: Configs,
    *,
    targets: Collection[str],
    cluster_brokers: Collection[str],
    queue_count: int,
    now_ms: int,
) -> StaticTopicPlan:
    """Plan to make the topic with so many logic queues, or to give it more, which go to `targets` alone.

    Raises:
        InvalidRequestError: It has as many already, or more; the brokers disagree about it; or there are no targets.
    """
    epoch, queues = check(topic, present)
    if queue_count <= len(queues):
        raise InvalidRequestError("a static topic only grows", topic=topic, queues=len(queues), wanted=queue_count)
    configs = {name: _copy(config) for name, config in present.items()}
    if not targets:
        raise InvalidRequestError("no broker to give the queues to", topic=topic)
    counts = Counter(items[-1].broker_name or "" for items in queues.values())
    order = _order(topic, targets)
    for queue_id in range(len(queues), queue_count):
        name = min(order, key=lambda one: (counts[one], order.index(one)))
        counts[name] += 1
        item = LogicQueueMappingItem(
            gen=0, broker_name=name, queue_id=_new_queue(configs, topic, name), logic_offset=QUEUE_START
        )
        mapping_of(configs[name]).hosted_queues[queue_id] = [item]
    return _plan(
        topic, CREATE_OR_UPDATE, configs, cluster_brokers, total=queue_count, epoch=max(epoch + EPOCH_STEP, now_ms)
    )


def plan_move(
    topic: str, present: Configs, *, targets: Collection[str], cluster_brokers: Collection[str], now_ms: int
) -> StaticTopicPlan:
    """Plan to have only `targets` lead the topic's queues, each its share; none moves where all is so already.

    Raises:
        ObjectNotFoundError: There is no such topic.
        InvalidRequestError: There are no targets, or the brokers disagree about the topic.
    """
    if not present:
        raise ObjectNotFoundError("there is no such static topic", topic=topic)
    if not targets:
        raise InvalidRequestError("no broker to move the queues to", topic=topic)
    epoch, queues = check(topic, present)
    epoch = max(epoch + EPOCH_STEP, now_ms)
    configs = {name: _copy(config) for name, config in present.items()}
    homeless, room = _shares(topic, queues, targets)
    receivers: set[str] = set()
    givers: set[str] = set()
    for queue_id in homeless:
        name = next(one for one, count in room.items() if count)
        room[name] -= 1
        items = queues[queue_id]
        giver = items[-1].broker_name or ""
        item = LogicQueueMappingItem(
            gen=items[-1].gen + 1,
            broker_name=name,
            queue_id=_new_queue(configs, topic, name),
            logic_offset=UNDECIDED,
        )
        for one in (name, giver):
            mapping_of(configs[one]).hosted_queues[queue_id] = [*items, item]
        receivers.add(name)
        givers.add(giver)
    plan = _plan(topic, REMAPPING, configs, cluster_brokers, total=len(queues), epoch=epoch)
    plan.broker_to_map_in, plan.broker_to_map_out = sorted(receivers), sorted(givers)
    return plan


def block_after(end: int, *, block_size: int = BLOCK_SIZE) -> int:
    """Where a moved queue goes on: at a multiple of the block size, at least half a block behind its old end."""
    blocks, rest = divmod(end, block_size)
    return (blocks + (1 if rest < block_size // 2 else 2)) * block_size


def _shares(topic: str, queues: Mapping[int, Items], targets: Collection[str]) -> tuple[list[int], dict[str, int]]:
    """The queues that have to move, and how many each target has room for."""
    led = dict.fromkeys(targets, 0)
    for items in queues.values():
        name = items[-1].broker_name or ""
        if name in led:
            led[name] += 1
    # Who leads most already keeps the larger share: fewer queues move.
    order = sorted(_order(topic, targets), key=lambda name: -led[name])
    share, rest = divmod(len(queues), len(order))
    room = {name: share + (1 if place < rest else 0) for place, name in enumerate(order)}
    homeless = []
    for queue_id, items in sorted(queues.items()):
        name = items[-1].broker_name or ""
        if room.get(name, 0):
            room[name] -= 1
        else:
            homeless.append(queue_id)
    return homeless, room


def _order(topic: str, names: Collection[str]) -> list[str]:
    """The names, from one on that depends on the topic."""
    ordered = sorted(names)
    first = zlib.crc32(topic.encode()) % len(ordered)
    return ordered[first:] + ordered[:first]


def _new_queue(configs: dict[str, TopicConfigAndMapping], topic: str, name: str) -> int:
    """Give a broker one more physical queue; its id."""
    config = configs.get(name)
    if config is None:
        config = configs[name] = _empty(topic, name)
    config.write_queue_nums += 1
    config.read_queue_nums = max(config.read_queue_nums + 1, config.write_queue_nums)
    return config.write_queue_nums - 1


def _plan(
    topic: str,
    kind: str,
    configs: dict[str, TopicConfigAndMapping],
    cluster_brokers: Collection[str],
    *,
    total: int,
    epoch: int,
) -> StaticTopicPlan:
    for name in cluster_brokers:
        configs.setdefault(name, _empty(topic, name))
    for config in configs.values():
        mapping = mapping_of(config)
        mapping.epoch, mapping.total_queues = epoch, total
    return StaticTopicPlan(topic=topic, type=kind, epoch=epoch, broker_config_map=configs)


def _empty(topic: str, name: str) -> TopicConfigAndMapping:
    return TopicConfigAndMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(topic=topic, broker_name=name),
    )


def _copy(config: TopicConfigAndMapping) -> TopicConfigAndMapping:
    mapping = mapping_of(config)
    return msgspec.structs.replace(
        config, mapping_detail=msgspec.structs.replace(mapping, hosted_queues=dict(mapping.hosted_queues))
    )
