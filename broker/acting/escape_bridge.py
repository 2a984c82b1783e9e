"""Escape bridge: sends a message that a slave may not store itself to another master of the cluster.

    which master    one that has a writable queue of the message's topic, each in turn; never this broker's own name
    how             an ordinary send, with the message's keys, tags, birth time, flags and tries
    left out        the properties by which the message has waited: it would wait once more; and TRAN_MSG, which a
                    committed message keeps, so that only what is open is a half message there

Check points of POP and their acknowledgements all go to one queue of one master, for each topic whose messages were
popped: one that has this topic, chosen by names. There they find each other.

Rules
  - A message counts as sent when it was answered SEND_OK. Any other answer, and none, is an error: the caller tries
    again, so a message may arrive twice, and never not at all.
  - Without another master that has the topic, the message waits where it is.
Bounds: TOPICS_MAX routes are remembered, each for ROUTE_MS; after a failed send its route is looked up anew.
Owner: the hot process's event loop.
Source: broker/failover/EscapeBridge.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.cluster import PeerBrokers, Registration
from thermocline.broker.pops import RecordPlace
from thermocline.broker.settings import BrokerConfig
from thermocline.pop.revive_log import topic_of_record
from thermocline.remoting.bodies import PERM_WRITE, TopicRouteData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, ResponseError, ServiceUnavailableError
from thermocline.remoting.handles import revive_topic
from thermocline.remoting.headers.namesrv import GetRouteInfoRequestHeader
from thermocline.remoting.headers.send import SendMessageRequestHeaderV2
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.log import MessageDraft

TOPICS_MAX = 10_000
ROUTE_MS = 30_000
ROUTE_TIMEOUT_MS = 3_000
SEND_TIMEOUT_MS = 3_000
KEPT_FLAGS = sys_flags.COMPRESSED | sys_flags.MULTI_TAGS | sys_flags.COMPRESSION_MASK
WAITED_BY = (
    PropertyName.DELAY_LEVEL,
    PropertyName.REAL_TOPIC,
    PropertyName.REAL_QUEUE_ID,
    PropertyName.TIMER_DELAY_S,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_OUT_MS,
    PropertyName.TIMER_ENQUEUE_MS,
    PropertyName.TIMER_DEQUEUE_MS,
    PropertyName.TIMER_ROLL_TIMES,
)


class _Queues(msgspec.Struct, frozen=True):
    """The brokers that take a topic's messages, with how many queues each has."""

    found_ms: int
    brokers: tuple[tuple[str, int], ...]


class EscapeBridge:
    """See the module's header."""

    def __init__(
        self,
        registration: Registration,
        peers: PeerBrokers,
        *,
        config: Callable[[], BrokerConfig],
        clock: Callable[[], int],
    ) -> None:
        """`clock`: steady, ms."""
        self._registration = registration
        self._peers = peers
        self._config = config
        self._clock = clock
        self._routes: dict[str, _Queues] = {}
        self._turn = 0

    async def send(
        self,
        draft: MessageDraft,
        *,
        topic: str = "",
        place: RecordPlace | None = None,
        due_ms: int | None = None,
        is_half: bool = False,
    ) -> None:
        """Return when another master has the message. Cancelling leaves open whether it has.

        `topic`: where it goes, if not to the draft's. `place`: of a record of the revive topic; None: see
        `record_place`. `due_ms`: when it is to be delivered; None: at once. `is_half`: it is a half message, about
        which that master is to ask the producers.

        Raises:
            MQError: It does not; try again later.
        """
        topic = topic or draft.topic
        if place is None:
            place = await self._choose(draft, topic)
        properties = _without_wait(decode_properties(draft.properties_text), due_ms)
        if not is_half:
            properties.pop(PropertyName.TRANSACTION_PREPARED, None)
        command = self._command(draft, topic, place.queue_id, properties)
        try:
            answer = await self._peers.call(place.broker_name, command, timeout_ms=SEND_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise ResponseError(answer.remark or "", code=answer.code, broker=place.broker_name)
        except MQError:
            if topic == self._revive_topic:
                self._routes.clear()  # the place depends on the route of another topic, too
            self._routes.pop(topic, None)
            raise

    async def record_place(self, topic: str) -> RecordPlace:
        """Where check points about messages of a topic go, and their acknowledgements.

        Raises:
            MQError: Nowhere now.
        """
        queue_counts = dict(await self._masters_of(self._revive_topic))
        names = sorted(name for name, _ in await self._masters_of(topic) if name in queue_counts)
        if not names:
            raise ServiceUnavailableError("no other master of the cluster takes check points of the topic", topic=topic)
        number = zlib.crc32(f"{self._config().broker_name}@{topic}".encode())
        name = names[number % len(names)]
        return RecordPlace(broker_name=name, queue_id=number % queue_counts[name])

    @property
    def _revive_topic(self) -> str:
        return revive_topic(self._config().cluster_name)

    async def _choose(self, draft: MessageDraft, topic: str) -> RecordPlace:
        if topic == self._revive_topic:
            return await self.record_place(topic_of_record(draft.body))
        masters = await self._masters_of(topic)
        if not masters:
            raise ServiceUnavailableError("no other master of the cluster takes messages of the topic", topic=topic)
        broker_name, queue_count = masters[self._turn % len(masters)]
        self._turn += 1
        return RecordPlace(broker_name=broker_name, queue_id=self._turn % queue_count)

    async def _masters_of(self, topic: str) -> tuple[tuple[str, int], ...]:
        """The other masters that take the topic's messages, with how many queues each has."""
        found = self._routes.get(topic)
        if found is None or self._clock() - found.found_ms >= ROUTE_MS:
            found = _Queues(self._clock(), await self._look_up(topic))
            if len(self._routes) >= TOPICS_MAX:
                self._routes.clear()
            self._routes[topic] = found
        return found.brokers

    async def _look_up(self, topic: str) -> tuple[tuple[str, int], ...]:
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        answer = await self._registration.call(command, timeout_ms=ROUTE_TIMEOUT_MS)
        if answer is None:
            raise ServiceUnavailableError("no NameServer is connected", topic=topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return ()
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.remark or "", code=answer.code, topic=topic)
        route, config = TopicRouteData.decode(answer.body), self._config()
        in_cluster = {data.broker_name for data in route.broker_datas if data.cluster == config.cluster_name}
        return tuple(
            (data.broker_name, data.write_queue_nums)
            for data in route.queue_datas
            if data.perm & PERM_WRITE
            and data.write_queue_nums > 0
            and data.broker_name in in_cluster
            and data.broker_name != config.broker_name
        )

    def _command(
        self, draft: MessageDraft, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> RemotingCommand:
        config = self._config()
        header = SendMessageRequestHeaderV2(
            producer_group=properties.get(PropertyName.PRODUCER_GROUP)
            or f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            topic=topic,
            queue_id=queue_id,
            sys_flag=draft.sys_flag & KEPT_FLAGS,
            born_timestamp=draft.born_timestamp_ms,
            flag=draft.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=draft.reconsume_times,
            batch=False,
        )
        return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body=draft.body)


def _without_wait(properties: Mapping[str, str], due_ms: int | None) -> dict[str, str]:
    kept = {name: value for name, value in properties.items() if name not in WAITED_BY}
    if due_ms is not None:
        kept[PropertyName.TIMER_DELIVER_MS] = str(due_ms)
    return kept
