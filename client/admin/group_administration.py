"""Consumer groups: create, change, delete, list, how far they are, moving them."""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.fan_out import Answers
from thermocline.client.message_queue import MessageQueue, from_wire
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies import (
    REQUEST_MODES,
    ConsumeStats,
    GroupRetryPolicy,
    MessageRequestModes,
    ResetOffsetBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
)
from thermocline.remoting.errors import (
    GroupNotFoundError,
    InvalidRequestError,
    TopicNotFoundError,
)
from thermocline.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import check_group, dlq_topic, is_system_group, retry_topic

__all__ = ["EARLIEST", "LATEST", "GroupAdministration", "QueueProgress"]

EARLIEST = 0
"""For `reset_offsets`: the first message."""
LATEST = -1
"""For `reset_offsets`: behind the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """How far a group is in one queue."""

    queue: MessageQueue
    broker_offset: int
    """The queue's end."""
    consumer_offset: int
    """The group's offset; below the first message, or in front of offsets without messages, the next message's."""
    last_timestamp_ms: int
    """Store time of the last message consumed, 0 when there is none."""
    gap_count: int = 0
    """Offsets between the two that no message has: after a recovery from the bucket, or where messages were dropped."""

    @property
    def lag(self) -> int:
        """Messages not consumed yet."""
        return self.broker_offset - self.consumer_offset - self.gap_count


class GroupAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def create_group(
        self, config: SubscriptionGroupConfig | str, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Create a consumer group, or give one these settings; a name alone means default settings.

        Returns the names of the brokers that have it.

        Raises:
            InvalidRequestError: The name is impossible.
            ObjectNotFoundError: No such broker.
            PartialResultError: Some brokers failed; `result` names those that have the group.
        """
        wanted = SubscriptionGroupConfig(group_name=config) if isinstance(config, str) else config
        check_group(wanted.group_name)
        masters = await self._masters(cluster=cluster, broker=broker)
        answers = await self._ask_each(masters, lambda master: self._put_group(master, wanted))
        return answers.whole(answers.names())

    async def update_group(
        self,
        group: str,
        *,
        consume_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        consume_message_orderly: bool | None = None,
        retry_max_times: int | None = None,
        retry_queue_nums: int | None = None,
        retry_policy: GroupRetryPolicy | None = None,
    ) -> list[str]:
        """Change what is given of a group's settings, on every broker that has it; return their names.

        Raises:
            GroupNotFoundError: No broker has the group.
            InvalidRequestError: A number is impossible.
            PartialResultError: Some brokers failed; `result` names those that were changed.
        """
        changes = {
            "consume_enable": consume_enable,
            "consume_broadcast_enable": consume_broadcast_enable,
            "consume_message_orderly": consume_message_orderly,
            "retry_max_times": retry_max_times,
            "retry_queue_nums": retry_queue_nums,
            "group_retry_policy": retry_policy,
        }

        async def change(master: BrokerAddress) -> bool:
            config = await self._group_at(master, group)
            if config is None:
                return False
            for name, value in changes.items():
                if value is not None:
                    setattr(config, name, value)
            await self._put_group(master, config)
            return True

        answers = await self._ask_each(await self._masters(), change)
        return self._of_holders(answers, group)

    async def delete_group(self, group: str, *, clean_offsets: bool = False, cluster: str | None = None) -> list[str]:
        """Delete a group's settings with its retry and dead-letter topics; its offsets too with `clean_offsets`.

        Returns the names of the brokers that had it. With `clean_offsets` a group is also one that only has offsets
        left.

        Raises:
            GroupNotFoundError: No broker has the group.
            InvalidRequestError: The name is impossible.
            PartialResultError: Some brokers or NameServers failed; `result` names the brokers that have deleted it.
        """
        check_group(group)
        session = self._running()
        topics = (retry_topic(group), dlq_topic(group))

        async def delete(master: BrokerAddress) -> bool:
            is_there = group in await self._group_table(master)
            if not is_there and not (clean_offsets and await self._consume_stats(master, group, topic=None)):
                return False
            header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean_offsets)
            await session.call(master.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            for topic in topics:
                await session.call(
                    master.address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic)
                )
            return True

        answers = await self._ask_each(await self._masters(cluster=cluster), delete)
        failures = list(answers.failures)
        if not failures and any(answers.values()):  # else the retry topic may still exist somewhere
            for topic in topics:
                route = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
                deleted = await session.name_servers.call_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, route)
                failures += deleted.failures
        return self._of_holders(Answers(answers.by_peer, failures), group)

    async def list_groups(self, *, cluster: str | None = None, include_system: bool = False) -> list[str]:
        """Return the names of all groups, sorted; system groups only with `include_system`.

        Raises:
            PartialResultError: Some brokers failed; `result` has the groups of the others.
        """
        answers = await self._ask_each(await self._masters(cluster=cluster), self._group_table, takes_replicas=True)
        names = {name for table in answers.values() for name in table}
        return answers.whole(sorted(name for name in names if include_system or not is_system_group(name)))

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return a group's settings on each broker that has it.

        (It reads the whole group table: a broker that creates groups by itself would create a single requested one.)

        Raises:
            GroupNotFoundError: No broker has it.
            PartialResultError: Some brokers failed.
        """
        answers = await self._ask_each(
            await self._masters(), lambda master: self._group_at(master, group), takes_replicas=True
        )
        configs = {name: config for name, config in answers.by_name().items() if config is not None}
        answers.whole(configs)
        if not configs:
            raise GroupNotFoundError("no broker has this group", group=group)
        return configs

    async def group_progress(self, group: str, *, topic: str | None = None) -> list[QueueProgress]:
        """Return how far a group is in every queue that it has an offset in, sorted.

        Raises:
            ObjectNotFoundError: There is no such group or topic.
            PartialResultError: Some brokers failed; `result` has the queues of the others.
        """
        answers = await self._ask_each(
            await self._masters(), lambda master: self._consume_stats(master, group, topic=topic), takes_replicas=True
        )
        return answers.whole(sorted((one for each in answers.values() for one in each), key=lambda one: one.queue))

    async def reset_offsets(self, group: str, topic: str, *, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Move a group to the first message stored at a time or later, in every queue; return the new offsets.

        `EARLIEST` and `LATEST` are such times. Members that run go on from there with their next pull.

        Raises:
            ObjectNotFoundError: There is no such group or topic.
            PartialResultError: Some brokers failed; `result` has the queues of those on which the group was moved.
        """

        async def reset(master: BrokerAddress) -> dict[MessageQueue, int]:
            header = ResetOffsetRequestHeader(
                group=group, topic=topic, timestamp=timestamp_ms, queue_id=-1, offset=NO_QUEUE_OFFSET, is_force=True
            )
            answer = await self._running().call(master.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            table = ResetOffsetBody.decode(answer.body).offset_table
            return {from_wire(queue): offset for queue, offset in table.items()}

        answers = await self._ask_each(await self._topic_masters(topic), reset)
        offsets = {queue: offset for each in answers.values() for queue, offset in each.items()}
        return answers.whole(dict(sorted(offsets.items())))

    async def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Move a group to an offset in one queue.

        Raises:
            ObjectNotFoundError: There is no such group, topic or broker.
            InvalidRequestError: The queue has no such offset.
        """
        header = ResetOffsetRequestHeader(
            group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=QueueOffset(offset),
            timestamp=0,
            is_force=True,
        )

        async def reset(master: BrokerAddress) -> None:
            await self._running().call(master.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

        await self._ask_one(queue.broker_name, reset)

    async def set_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store a group's offset as if a member had committed it: for groups of which no member runs."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=QueueOffset(offset)
        )

        async def store(master: BrokerAddress) -> None:
            await self._running().call(master.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

        await self._ask_one(queue.broker_name, store)

    async def clone_group_offsets(self, source: str, target: str, *, topic: str) -> list[str]:
        """Give a group the offsets of another in one topic; return the names of the brokers that have done it.

        Raises:
            ObjectNotFoundError: There is no such topic.
            PartialResultError: Some brokers failed; `result` names the others.
        """
        header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=topic, offline=False)

        async def clone(master: BrokerAddress) -> None:
            await self._running().call(master.address, RequestCode.CLONE_GROUP_OFFSET, header)

        answers = await self._ask_each(await self._topic_masters(topic), clone)
        return answers.whole(answers.names())

    async def set_request_mode(
        self,
        group: str,
        topic: str,
        mode: str,
        *,
        pop_share_queues: int = 0,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Let a group's push consumers pull ("PULL") or pop ("POP") a topic; return the brokers that were changed.

        Consumers follow that leave balancing to the broker (in Java `setClientRebalance(false)`), within 20 s.
        `pop_share_queues`: with how many others each member shares its queues; 0 lets all read all.

        Raises:
            ObjectNotFoundError: There is no such group, topic or broker.
            InvalidRequestError: There is no such mode.
            PartialResultError: Some brokers failed; `result` names those that were changed.
        """
        if mode not in REQUEST_MODES:
            raise InvalidRequestError(f"a mode is one of {', '.join(REQUEST_MODES)}", mode=mode)
        body = SetMessageRequestModeRequestBody(
            consumer_group=group, topic=topic, mode=mode, pop_share_queue_num=pop_share_queues
        )

        async def tell(master: BrokerAddress) -> None:
            await self._running().call(master.address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())

        answers = await self._ask_each(await self._masters(cluster=cluster, broker=broker), tell)
        return answers.whole(answers.names())

    async def request_modes(self, *, broker: str | None = None) -> list[SetMessageRequestModeRequestBody]:
        """Return what was set by `set_request_mode`, on any broker or on one; all other groups pull.

        Raises:
            PartialResultError: Some brokers failed.
        """

        async def ask(master: BrokerAddress) -> MessageRequestModes:
            answer = await self._running().call(master.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
            return MessageRequestModes.decode(answer.body)

        answers = await self._ask_each(await self._masters(broker=broker), ask)
        found: dict[tuple[str, str], SetMessageRequestModeRequestBody] = {}
        for each in answers.values():
            for topic, modes in each.message_request_mode_map.items():
                found |= {(topic, group): mode for group, mode in modes.items()}
        return answers.whole([found[key] for key in sorted(found)])

    async def _consume_stats(self, master: BrokerAddress, group: str, *, topic: str | None) -> list[QueueProgress]:
        """How far a group is at one broker; nothing where it has no offsets."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        try:
            answer = await self._running().call(master.address, RequestCode.GET_CONSUME_STATS, header)
        except TopicNotFoundError:
            return []
        return [
            QueueProgress(
                queue=from_wire(queue),
                broker_offset=offsets.broker_offset if offsets.end_offset is None else offsets.end_offset,
                gap_count=0 if offsets.end_offset is None else offsets.end_offset - offsets.broker_offset,
                consumer_offset=max(0, offsets.consumer_offset),  # of static topics -1 where there is none
                last_timestamp_ms=offsets.last_timestamp,
            )
            for queue, offsets in ConsumeStats.decode(answer.body).offset_table.items()
        ]

    async def _group_table(self, master: BrokerAddress) -> dict[str, SubscriptionGroupConfig]:
        answer = await self._running().call(master.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupTableBody.decode(answer.body).subscription_group_table

    async def _group_at(self, master: BrokerAddress, group: str) -> SubscriptionGroupConfig | None:
        """A group's settings at one broker; None where it does not exist."""
        if group not in await self._group_table(master):
            return None
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        answer = await self._running().call(master.address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        return SubscriptionGroupConfig.decode(answer.body)

    async def _put_group(self, master: BrokerAddress, config: SubscriptionGroupConfig) -> None:
        await self._running().call(
            master.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode()
        )

    @staticmethod
    def _of_holders(answers: Answers[BrokerAddress, bool], group: str) -> list[str]:
        """The names of the brokers that answered True (they have the group); GroupNotFoundError when none did."""
        names = [name for name, is_there in answers.by_name().items() if is_there]
        answers.whole(names)
        if not names:
            raise GroupNotFoundError("no broker has this group", group=group)
        return names
