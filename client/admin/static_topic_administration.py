"""Static topics: make, grow, move, read. Their logic queues keep number and offsets while brokers come and go.

A change is planned first, then applied (static_topic_plan.py). Applying may stop anywhere: applied again, the same plan
goes on where it stopped. A plan that moves queues is applied in steps
    receivers get the mapping in which they lead; messages that they store have no logic offset yet
    givers get the mapping in which they do not lead; they refuse sends from here on, so their ends are final
    receivers get the offsets at which their queues continue
    all other brokers of the topic get the new epoch
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

import msgspec

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.admin.static_topic_plan import (
    BLOCK_SIZE,
    StaticTopicPlan,
    block_after,
    mapping_of,
    plan_growth,
    plan_move,
)
from thermocline.client.admin.topic_header import topic_header
from thermocline.client.fan_out import Answers
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies import MessageQueue, TopicConfigAndMapping, TopicStatsTable
from thermocline.remoting.bodies.logic_queue import Items, is_decided, static_offset
from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError, TopicNotFoundError
from thermocline.remoting.headers import (
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import check_topic

__all__ = ["StaticTopicAdministration"]


class StaticTopicAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def static_topic(self, topic: str) -> dict[str, TopicConfigAndMapping]:
        """Return a static topic's configuration and mapping on each broker that has a part in it.

        Raises:
            TopicNotFoundError: No broker has it as a static topic.
            PartialResultError: Some brokers failed; `result` has the parts of the others.
        """
        answers = await self._mapped(topic, await self._masters())
        configs = _found(answers)
        answers.whole(configs)
        if not configs or all(config.mapping_detail is None for config in configs.values()):
            raise TopicNotFoundError("there is no such static topic", topic=topic)
        return configs

    async def plan_static_topic(
        self, topic: str, *, queue_nums: int, cluster: str | None = None, brokers: Collection[str] = ()
    ) -> StaticTopicPlan:
        """Plan to make a static topic with so many logic queues, or to give one more; nothing changes.

        `brokers`: names of those that new queues may go to; without any, all masters, or those of a cluster.

        Raises:
            InvalidRequestError: The topic has as many queues, is an ordinary one, or a change of it is unfinished.
            ObjectNotFoundError: No such broker.
            UnavailableError: A broker cannot be asked what it has of the topic.
        """
        check_topic(topic)
        present, targets, cluster_brokers = await self._present(topic, cluster=cluster, brokers=brokers)
        return plan_growth(
            topic,
            present,
            targets=targets,
            cluster_brokers=cluster_brokers,
            queue_count=queue_nums,
            now_ms=time.time_ns() // 1_000_000,
        )

    async def plan_static_move(
        self, topic: str, *, cluster: str | None = None, brokers: Collection[str] = ()
    ) -> StaticTopicPlan:
        """Plan to have only these brokers lead a static topic's queues, each its share; nothing changes.

        Raises:
            ObjectNotFoundError: No such broker, or no such topic.
            InvalidRequestError: The topic is an ordinary one, or a change of it is unfinished.
            UnavailableError: A broker cannot be asked what it has of the topic.
        """
        present, targets, cluster_brokers = await self._present(topic, cluster=cluster, brokers=brokers)
        return plan_move(
            topic, present, targets=targets, cluster_brokers=cluster_brokers, now_ms=time.time_ns() // 1_000_000
        )

    async def apply_static_plan(
        self, plan: StaticTopicPlan, *, force: bool = False, block_size: int = BLOCK_SIZE
    ) -> dict[int, int]:
        """Send every broker its part of a plan; return the offsets at which moved logic queues continue.

        `force`: also brokers that have a newer mapping. `block_size` 1: queues go on right at their end.

        Raises:
            InvalidRequestError: A broker refuses; those before it have their part.
            ObjectNotFoundError: A broker is not there; no broker was changed.
            UnavailableError: A broker did not answer; the error names it. Apply the plan again.
        """
        masters = {master.broker_name: master for master in await self._masters()}
        missing = plan.broker_config_map.keys() - masters.keys()
        if missing:
            raise ObjectNotFoundError("a broker of the plan is not there", brokers=sorted(missing))
        receivers, givers = plan.broker_to_map_in, plan.broker_to_map_out
        mapped = await self._mapped(plan.topic, [masters[name] for name in receivers])
        mapped.require_all()
        plan = _with_known_offsets(plan, _found(mapped))
        decided: dict[int, int] = {}
        if plan.moved:
            await self._tell(plan, receivers, masters, force=force)
        await self._tell(plan, givers, masters, force=force)
        for queue_id, items in plan.moved.items():
            decided[queue_id] = await self._place_after(plan.topic, items, masters, block_size=block_size)
        plan = _with_offsets(plan, decided)
        if receivers:
            await self._tell(plan, receivers, masters, force=force)
        if decided:
            await self._tell(plan, givers, masters, force=force)
        others = [name for name in plan.broker_config_map if name not in {*receivers, *givers}]
        await self._tell(plan, others, masters, force=force)
        return decided

    async def _place_after(
        self, topic: str, items: Items, masters: dict[str, BrokerAddress], *, block_size: int
    ) -> int:
        """Where the last of these items begins, now that the one before it takes nothing any more."""
        old = items[-2]
        master = masters.get(old.broker_name or "")
        if master is None:
            raise ObjectNotFoundError("the broker that gives a queue away is not there", broker=old.broker_name)

        async def ask(giver: BrokerAddress) -> TopicStatsTable:
            header = GetTopicStatsInfoRequestHeader(topic=topic)
            answer = await self._running().call(giver.address, RequestCode.GET_TOPIC_STATS_INFO, header)
            return TopicStatsTable.decode(answer.body)

        table = (await self._ask_one(master.broker_name, ask)).offset_table
        queue = MessageQueue(topic=topic, broker_name=master.broker_name, queue_id=old.queue_id)
        if queue not in table:
            raise ObjectNotFoundError("the broker does not know where its queue ends", queue=str(queue))
        end = static_offset(old, QueueOffset(table[queue].max_offset))
        if block_size <= 1:
            return max(end, old.logic_offset + 1)
        return block_after(end, block_size=block_size)

    async def _present(
        self, topic: str, *, cluster: str | None, brokers: Collection[str]
    ) -> tuple[dict[str, TopicConfigAndMapping], list[str], list[str]]:
        """What a plan starts from: the topic as it is, the brokers it may go to, and all brokers of their clusters."""
        masters = await self._masters()
        targets = _targets(masters, cluster=cluster, brokers=brokers)
        answers = await self._mapped(topic, masters)
        answers.require_all()
        present = _found(answers)
        return present, targets, _in_same_clusters(masters, {*targets, *present})

    async def _mapped(
        self, topic: str, masters: Iterable[BrokerAddress]
    ) -> Answers[BrokerAddress, TopicConfigAndMapping | None]:
        """What each broker has of the topic; None where it is unknown."""
        header = GetTopicConfigRequestHeader(topic=topic, logical=True)

        async def ask(master: BrokerAddress) -> TopicConfigAndMapping | None:
            try:
                answer = await self._running().call(master.address, RequestCode.GET_TOPIC_CONFIG, header)
            except TopicNotFoundError:
                return None
            return TopicConfigAndMapping.decode(answer.body)

        return await self._ask_each(masters, ask)

    async def _tell(
        self, plan: StaticTopicPlan, names: Iterable[str], masters: dict[str, BrokerAddress], *, force: bool
    ) -> None:
        """Tell each of these brokers its part; UnavailableError or InvalidRequestError unless all have taken it."""

        async def tell(master: BrokerAddress) -> None:
            config = plan.broker_config_map[master.broker_name]
            await self._running().call(
                master.address,
                RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
                topic_header(plan.topic, config, force=force),
                body=mapping_of(config).encode(),
            )

        answers = await self._ask_each([masters[name] for name in names], tell)
        answers.require_all()


def _found(answers: Answers[BrokerAddress, TopicConfigAndMapping | None]) -> dict[str, TopicConfigAndMapping]:
    return {name: config for name, config in answers.by_name().items() if config is not None}


def _targets(masters: Iterable[BrokerAddress], *, cluster: str | None, brokers: Collection[str]) -> list[str]:
    if cluster is not None and brokers:
        raise InvalidRequestError("either a cluster or brokers")
    names = {master.broker_name for master in masters if cluster in (None, master.cluster)}
    missing = set(brokers) - names
    if missing or not names:
        raise ObjectNotFoundError("no such broker", brokers=sorted(missing), cluster=cluster)
    return sorted(brokers or names)


def _in_same_clusters(masters: Collection[BrokerAddress], names: Collection[str]) -> list[str]:
    clusters = {master.cluster for master in masters if master.broker_name in names}
    return [master.broker_name for master in masters if master.cluster in clusters]


def _with_known_offsets(plan: StaticTopicPlan, found: dict[str, TopicConfigAndMapping]) -> StaticTopicPlan:
    """The plan with the offsets that were decided when it was applied before."""
    decided: dict[int, int] = {}
    for queue_id, items in plan.moved.items():
        config = found.get(items[-1].broker_name or "")
        mapping = None if config is None else config.mapping_detail
        for item in [] if mapping is None else mapping.hosted_queues.get(queue_id, []):
            if item.gen == items[-1].gen and is_decided(item):
                decided[queue_id] = item.logic_offset
    return _with_offsets(plan, decided)


def _with_offsets(plan: StaticTopicPlan, offsets: dict[int, int]) -> StaticTopicPlan:
    """The plan with moved queues that go on at these offsets."""
    configs = {}
    for name, config in plan.broker_config_map.items():
        mapping = mapping_of(config)
        queues = {
            queue_id: [*items[:-1], msgspec.structs.replace(items[-1], logic_offset=offsets[queue_id])]
            if queue_id in offsets and items and not is_decided(items[-1])
            else items
            for queue_id, items in mapping.hosted_queues.items()
        }
        configs[name] = msgspec.structs.replace(
            config, mapping_detail=msgspec.structs.replace(mapping, hosted_queues=queues)
        )
    return msgspec.structs.replace(plan, broker_config_map=configs)
