"""RoutedMessaging: the seam over several clusters, each behind a ClusterMessaging of its own.

    what names a topic alone      goes where the rules say now (proxy/routing/rules.py)
    what names a broker           goes to that broker's cluster: queues, receipt handles, transaction and recall handles
    questions of brokers          come from every cluster

Names of brokers that leave here say their cluster, and lose it on the way in (proxy/routing/broker_names.py). A cluster
that cannot be reached fails what is routed to it and nothing else: clusters that consumers only read from beside
another one are left out of a route meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.cluster.cluster_messaging import ClusterMessaging
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.messaging import (
    CALLER,
    BrokerQueues,
    CheckReceiver,
    OutgoingMessage,
    PopOutcome,
    ProxyHandle,
    PulledMessages,
    SendOutcome,
    TopicQueues,
    TopicType,
    TransactionCheck,
    TransactionHandle,
)
from thermocline.proxy.routing import DEFAULT_CLUSTER, BrokerNames, NamedCluster, Routing, ask_clusters
from thermocline.remoting.bodies import PERM_READ, PERM_WRITE, SubscriptionData, SubscriptionGroupConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, ObjectNotFoundError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = ["RoutedMessaging"]

T = TypeVar("T")


class RoutedMessaging:
    """See the module: a `Messaging`. Belongs to one event loop."""

    def __init__(self, options: ClusterOptions, routing: Routing, checks: CheckReceiver) -> None:
        """`options`: of the default cluster; a named one differs by what its setting says."""
        self._routing = routing
        self._names = routing.names
        self._clusters: Mapping[str, ClusterMessaging] = {
            DEFAULT_CLUSTER: ClusterMessaging(options, _Checks(DEFAULT_CLUSTER, self._names, checks)),
            **{
                each.name: ClusterMessaging(_options_of(each, options), _Checks(each.name, self._names, checks))
                for each in routing.clusters
            },
        }

    @property
    def clusters(self) -> Mapping[str, ClusterMessaging]:
        """The clusters by name."""
        return self._clusters

    async def start(self) -> None:
        """Begin. Brokers may still be away, and NameServers of named clusters.

        Raises:
            UnavailableError: Where the default cluster's NameServers are to be looked up, none was found.
        """
        for cluster in self._clusters.values():
            await cluster.start()
        self._routing.start()

    async def close(self) -> None:
        """End; idempotent."""
        await self._routing.close()
        await asyncio.gather(*(cluster.close() for cluster in self._clusters.values()))

    async def ask_cluster(self, code: int, header: Header | None, *, timeout_ms: int) -> RemotingCommand:
        """Ask the default cluster; see `ClusterMessaging.ask_cluster`."""
        return await self._clusters[DEFAULT_CLUSTER].ask_cluster(code, header, timeout_ms=timeout_ms)

    # -- what there is -----------------------------------------------------------------------------------------------

    async def topic_queues(self, topic: str, *, group: str | None = "") -> TopicQueues:
        """See `Messaging`."""
        return await self._first_found(topic, group, lambda clusters: self._queues(topic, clusters))

    async def topic_type(self, topic: str, *, group: str | None = "", broker_name: str = "") -> TopicType:
        """See `Messaging`."""
        if broker_name:
            return await self._of(broker_name)[0].topic_type(topic)
        return await self._first_found(topic, group, lambda clusters: self._type(topic, clusters))

    async def group_config(
        self, group: str, *, topic: str = "", broker_name: str = ""
    ) -> SubscriptionGroupConfig | None:
        """See `Messaging`."""
        if broker_name:
            cluster = self._names.split(broker_name)[0]
        else:
            cluster = self._routing.decide(topic, group, CALLER.get()).first
        return await self._clusters[cluster].group_config(group)

    async def broker_address(self, broker_name: str) -> str:
        """See `Messaging`."""
        cluster, plain = self._of(broker_name)
        return await cluster.broker_address(plain)

    def doubt(self, address: str) -> None:
        """See `Messaging`: in the clusters that know it."""
        for cluster in self._clusters.values():
            cluster.doubt(address)

    # -- producing ---------------------------------------------------------------------------------------------------

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, producer_group: str, timeout_ms: int
    ) -> SendOutcome:
        """See `Messaging`."""
        name, plain = self._names.split(queue.broker_name)
        outcome = await self._clusters[name].send(
            replace(queue, broker_name=plain), messages, producer_group=producer_group, timeout_ms=timeout_ms
        )
        return msgspec.structs.replace(
            outcome,
            queue=replace(outcome.queue, broker_name=queue.broker_name),
            recall_handle=self._names.join_recall(name, outcome.recall_handle),
        )

    async def end_transaction(
        self,
        handle: TransactionHandle,
        *,
        topic: str,
        producer_group: str,
        message_id: str,
        state: int,
        is_check: bool,
        timeout_ms: int,
    ) -> None:
        """See `Messaging`."""
        cluster, plain = self._of(handle.broker_name)
        await cluster.end_transaction(
            replace(handle, broker_name=plain),
            topic=topic,
            producer_group=producer_group,
            message_id=message_id,
            state=state,
            is_check=is_check,
            timeout_ms=timeout_ms,
        )

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int) -> str:
        """See `Messaging`."""
        name, plain = self._names.split_recall(recall_handle)
        return await self._clusters[name].recall(topic, plain, timeout_ms=timeout_ms)

    def watch_transactions(self, producer_group: str, topic: str) -> None:
        """See `Messaging`: each cluster that has the topic asks, also of half messages from before a rule's change."""
        for cluster in self._clusters.values():
            cluster.watch_transactions(producer_group, topic)

    def unwatch_transactions(self, producer_group: str) -> None:
        """See `Messaging`."""
        for cluster in self._clusters.values():
            cluster.unwatch_transactions(producer_group)

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def pop(
        self,
        broker_name: str,
        subscription: SubscriptionData,
        *,
        group: str,
        count_max: int,
        invisible_ms: int,
        await_ms: int,
        init_mode: int,
        in_order: bool,
        attempt_id: str | None,
        timeout_ms: int,
    ) -> PopOutcome:
        """See `Messaging`."""
        name, plain = self._names.split(broker_name)
        outcome = await self._clusters[name].pop(
            plain,
            subscription,
            group=group,
            count_max=count_max,
            invisible_ms=invisible_ms,
            await_ms=await_ms,
            init_mode=init_mode,
            in_order=in_order,
            attempt_id=attempt_id,
            timeout_ms=timeout_ms,
        )
        for message in outcome.messages:
            message.handle = self._names.join_handle(name, message.handle)
        return outcome

    async def ack(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> None:
        """See `Messaging`."""
        name, plain = self._names.split_handle(handle)
        await self._clusters[name].ack(plain, topic=topic, group=group, timeout_ms=timeout_ms)

    def start_ack(
        self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int
    ) -> asyncio.Future[MQError | None]:
        """See `Messaging`."""
        name, plain = self._names.split_handle(handle)
        return self._clusters[name].start_ack(plain, topic=topic, group=group, timeout_ms=timeout_ms)

    async def ack_all(self, handles: Sequence[ProxyHandle], *, topic: str, group: str, timeout_ms: int) -> None:
        """See `Messaging`."""
        name, _ = self._names.split_handle(handles[0])
        plain = [self._names.split_handle(handle)[1] for handle in handles]
        await self._clusters[name].ack_all(plain, topic=topic, group=group, timeout_ms=timeout_ms)

    async def change_invisible(
        self, handle: ProxyHandle, *, topic: str, group: str, invisible_ms: int, timeout_ms: int
    ) -> ProxyHandle:
        """See `Messaging`."""
        name, plain = self._names.split_handle(handle)
        changed = await self._clusters[name].change_invisible(
            plain, topic=topic, group=group, invisible_ms=invisible_ms, timeout_ms=timeout_ms
        )
        return self._names.join_handle(name, changed)

    async def stored_record(self, broker_name: str, physical_offset: int, *, timeout_ms: int) -> MessageRecord | None:
        """See `Messaging`."""
        cluster, plain = self._of(broker_name)
        return await cluster.stored_record(plain, physical_offset, timeout_ms=timeout_ms)

    async def send_back_dead(
        self, handle: ProxyHandle, *, topic: str, group: str, message_id: str, timeout_ms: int
    ) -> None:
        """See `Messaging`."""
        name, plain = self._names.split_handle(handle)
        await self._clusters[name].send_back_dead(
            plain, topic=topic, group=group, message_id=message_id, timeout_ms=timeout_ms
        )

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        group: str,
        offset: QueueOffset,
        count_max: int,
        await_ms: int,
        timeout_ms: int,
    ) -> PulledMessages:
        """See `Messaging`."""
        cluster, plain = self._place(queue)
        return await cluster.pull(
            plain,
            subscription,
            group=group,
            offset=offset,
            count_max=count_max,
            await_ms=await_ms,
            timeout_ms=timeout_ms,
        )

    async def commit_offset(self, queue: MessageQueue, *, group: str, offset: QueueOffset, timeout_ms: int) -> None:
        """See `Messaging`."""
        cluster, plain = self._place(queue)
        await cluster.commit_offset(plain, group=group, offset=offset, timeout_ms=timeout_ms)

    async def committed_offset(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> QueueOffset | None:
        """See `Messaging`."""
        cluster, plain = self._place(queue)
        return await cluster.committed_offset(plain, group=group, timeout_ms=timeout_ms)

    async def is_queue_locked(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> bool:
        """See `Messaging`."""
        cluster, plain = self._place(queue)
        return await cluster.is_queue_locked(plain, group=group, timeout_ms=timeout_ms)

    async def queue_offset(
        self, queue: MessageQueue, *, timestamp_ms: int | None, is_end: bool, timeout_ms: int
    ) -> QueueOffset:
        """See `Messaging`."""
        cluster, plain = self._place(queue)
        return await cluster.queue_offset(plain, timestamp_ms=timestamp_ms, is_end=is_end, timeout_ms=timeout_ms)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _of(self, broker_name: str) -> tuple[ClusterMessaging, str]:
        name, plain = self._names.split(broker_name)
        return self._clusters[name], plain

    def _place(self, queue: MessageQueue) -> tuple[ClusterMessaging, MessageQueue]:
        cluster, plain = self._of(queue.broker_name)
        return cluster, replace(queue, broker_name=plain)

    async def _first_found(self, topic: str, group: str | None, ask: Callable[[tuple[str, ...]], Awaitable[T]]) -> T:
        """What is found in the clusters that the rules say: of a producer in the one that it sends to; of a client that
        has not said its group yet also where a rule of a group says."""
        caller = CALLER.get()
        clusters = self._routing.decide(topic, group or "", caller).clusters
        try:
            return await ask(clusters[:1] if group == "" else clusters)
        except ObjectNotFoundError:
            if group is not None:
                raise
            for decision in self._routing.rules.of_any_group(topic, caller):
                try:
                    return await ask(decision.clusters)
                except ObjectNotFoundError:
                    continue
            raise

    async def _queues(self, topic: str, clusters: Sequence[str]) -> TopicQueues:
        """The queues of a topic in the first cluster, and those that can be read in the others."""
        first = clusters[0]
        found = await ask_clusters(clusters, lambda name: self._clusters[name].topic_queues(topic))
        failure = found[first]
        if isinstance(failure, MQError):
            is_needed = not topic.startswith(RETRY_TOPIC_PREFIX) and not isinstance(failure, ObjectNotFoundError)
            if is_needed or not any(isinstance(each, TopicQueues) for each in found.values()):
                raise failure
        brokers: list[BrokerQueues] = []
        write_queues: tuple[MessageQueue, ...] = ()
        for name, queues in found.items():
            if isinstance(queues, TopicQueues):
                brokers += self._joined(name, queues, is_first=name == first)
                if name == first:
                    join = self._names.join
                    write_queues = tuple(
                        replace(queue, broker_name=join(name, queue.broker_name)) for queue in queues.write_queues
                    )
        return TopicQueues(topic=topic, brokers=tuple(brokers), write_queues=write_queues)

    def _joined(self, cluster: str, queues: TopicQueues, *, is_first: bool) -> list[BrokerQueues]:
        """A cluster's brokers as clients know them; those of another one than the first are for reading alone."""
        return [
            replace(
                broker,
                broker_name=self._names.join(cluster, broker.broker_name),
                permission=broker.permission if is_first else broker.permission & ~PERM_WRITE,
            )
            for broker in queues.brokers
            if is_first or broker.permission & PERM_READ
        ]

    async def _type(self, topic: str, clusters: Sequence[str]) -> TopicType:
        """The type that a topic has in the first cluster that has it."""
        first, *others = clusters
        try:
            return await self._clusters[first].topic_type(topic)
        except ObjectNotFoundError:
            for name in others:
                try:
                    return await self._clusters[name].topic_type(topic)
                except MQError:
                    continue
            raise


class _Checks:
    """Takes the questions of one cluster's brokers, and names its brokers as clients know them."""

    def __init__(self, cluster: str, names: BrokerNames, receiver: CheckReceiver) -> None:
        self._cluster = cluster
        self._names = names
        self._receiver = receiver

    def transaction_checked(self, check: TransactionCheck) -> None:
        """See `CheckReceiver`."""
        handle = replace(check.handle, broker_name=self._names.join(self._cluster, check.handle.broker_name))
        self._receiver.transaction_checked(replace(check, handle=handle))


def _options_of(cluster: NamedCluster, options: ClusterOptions) -> ClusterOptions:
    return replace(
        options,
        namesrv=cluster.namesrv,
        cluster_name=cluster.cluster_name,
        is_one_of_several=True,
        own_broker=None,
        credentials=cluster.credentials or options.credentials,
        tls=cluster.tls if cluster.has_own_tls else options.tls,
    )
