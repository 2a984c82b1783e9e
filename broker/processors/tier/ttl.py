"""Time to live requests of the `thermocline` command; RocketMQ does not have them. Codes: remoting/private_requests.py.

    90104 TTL_PREVIEW    topic, ttlMs?    the messages that another time to live would delete, and the bytes saved
    90105 TTL_SET        topic, ttlMs?    change it; without ttlMs the topic follows the broker's default again
    90106 TTL_EVIDENCE   topic            expired data that is still stored, and the objects that name it

Answers are JSON. RocketMQ's own `updateTopic` changes it as well (topic_attributes.py). Figures of the cold tier come
from the tier process; while it is away the answers say so.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from thermocline.broker.cold import is_tiered_topic
from thermocline.broker.helpers import (
    TIER_ROLE,
    ExpiredParts,
    HelperHub,
    HelperRequestCode,
    TierReportReply,
    TierReportRequest,
    TtlProofReply,
    TtlProofRequest,
    decode_body,
)
from thermocline.broker.queues import QueueLookup
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.tables import TopicTable, ttl_attributes, ttl_change
from thermocline.broker.tables import ttl_ms as effective_ttl_ms
from thermocline.broker.tier import HiddenMessages
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError, UnavailableError
from thermocline.remoting.private_requests import PrivateRequestCode, TtlEvidenceHeader, TtlHeader
from thermocline.store.message_store import MessageStore

REPORT_TIMEOUT_MS = 10_000
PROOF_TIMEOUT_MS = 60_000
DELETE_KEYS_MAX = 1_000
"""Objects that one request deletes."""


class TtlProcessor:
    """Serves the time to live requests."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        lookup: QueueLookup,
        hub: HelperHub,
        hidden: HiddenMessages,
        report_now: Callable[[], Awaitable[None]],
    ) -> None:
        """`report_now`: send all changes to the tier process."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self._lookup = lookup
        self._hub = hub
        self._hidden = hidden
        self._report_now = report_now

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            PrivateRequestCode.TTL_PREVIEW: self.preview,
            PrivateRequestCode.TTL_SET: self.set,
            PrivateRequestCode.TTL_EVIDENCE: self.evidence,
        }

    async def preview(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90104: messages exactly, by their store times; segments, packs and bytes as far as they go whole; and what
        has expired in those that stay."""
        header = command.header(TtlHeader)
        config = self._config(header.topic)
        now_ms = self._store.clock.now_ms()
        default_ms = None
        if not self._topics.is_system_topic(header.topic):
            default_ms = self._settings.broker.message_ttl_ms or None
        ttl_ms = effective_ttl_ms(ttl_attributes(config.attributes, header.ttl_ms), default_ms=default_ms)
        cut_ms = 0 if ttl_ms is None else now_ms - ttl_ms
        # What has expired already does not come back, however long the new time is.
        cut_ms = max(cut_ms, self._topics.expired_before(header.topic))
        messages, oldest_ms = await self._messages_before(config, cut_ms)
        expired = await self._expired_parts(header.topic, cut_ms)
        body: dict[str, object] = {
            "topic": header.topic,
            "ttlMs": ttl_ms,
            "cutMs": cut_ms,
            "messages": messages,
            "oldestSurvivingMs": oldest_ms,
            "isTierAway": expired is None and self._settings.tier.is_enabled,
        }
        if expired is not None:
            kept_ms = expired.partly_max_store_ms
            body |= {
                "segments": expired.segments,
                "packs": expired.packs,
                "bytes": expired.stored_bytes,
                "rawBytes": expired.raw_bytes,
                "objects": expired.objects,
                # One entry says that they are gone; objects are deleted a thousand at a time.
                "requests": {
                    "put": int(expired.objects > 0),
                    "delete": -(-expired.objects // DELETE_KEYS_MAX),
                },
                "partlyExpiredSegments": expired.partly_segments,
                "partlyExpiredBytes": expired.partly_stored_bytes,
                "partlyExpiredUntilMs": None if kept_ms is None or ttl_ms is None else kept_ms + ttl_ms,
                "heldBytes": expired.held_bytes,
                "graceMs": self._settings.tier.grace_ms,
            }
        return RemotingCommand.response(command, body=msgspec.json.encode(body))

    async def set(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90105."""
        header = command.header(TtlHeader)
        config = self._config(header.topic)
        change = ttl_change(config.attributes, header.ttl_ms)
        if change:
            await self._topics.update(config, change)
        body = {"topic": header.topic, "ttlMs": self._topics.time_to_live_ms(header.topic)}
        return RemotingCommand.response(command, body=msgspec.json.encode(body))

    async def evidence(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90106: whether a reader reaches any of the samples is for the asker to find out."""
        header = command.header(TtlEvidenceHeader)
        self._config(header.topic)
        topic = header.topic
        await self._report_now()
        now_ms = self._store.clock.now_ms()
        cut_ms, ttl_ms = self._topics.expired_before(topic), self._topics.time_to_live_ms(topic)
        incarnation = self._topics.incarnation(topic)
        queues = await self._hidden.queues(topic)
        tier, reason = None, ""
        if self._settings.tier.is_enabled and is_tiered_topic(topic):
            request = TtlProofRequest(topic=topic, incarnation=incarnation.id, cut_ms=cut_ms)
            tier, reason = await self._proof(request)
        body = {
            "topic": topic,
            "ttlMs": ttl_ms,
            "cutMs": cut_ms,
            "fixedCutMs": incarnation.expired_before_ms,
            "nowMs": now_ms,
            "queues": queues,
            "samples": await self._hidden.samples(topic, queues),
            "files": await self._hidden.local_files(topic, now_ms=now_ms),
            "tier": tier,
            "tierAway": reason,
        }
        return RemotingCommand.response(command, body=msgspec.json.encode(body))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError("no such topic", topic=topic)
        return config

    async def _messages_before(self, config: TopicConfig, cut_ms: int) -> tuple[int, int | None]:
        """How many visible messages a cut would take, and the store time of the oldest that survives it."""
        lookup, topic = self._lookup, config.topic_name
        count, oldest_ms = 0, None
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            minimum, end = await lookup.minimum(topic, queue_id), lookup.end(topic, queue_id)
            if minimum >= end:
                continue
            survivor = await lookup.offset_at(topic, queue_id, cut_ms)
            count += max(0, survivor - minimum)
            if survivor < end:
                time_ms = await lookup.message_time(topic, queue_id, survivor)
                if time_ms is not None:
                    oldest_ms = time_ms if oldest_ms is None else min(oldest_ms, time_ms)
        return count, oldest_ms

    async def _expired_parts(self, topic: str, cut_ms: int) -> ExpiredParts | None:
        """The cold data that the cut would delete; None while the tier process is away, or without a tier."""
        if not self._hub.is_connected(TIER_ROLE):
            return None
        request = TierReportRequest(topic=topic, visible_from_ms=cut_ms)
        try:
            response = await self._hub.ask(
                TIER_ROLE, HelperRequestCode.TIER_REPORT, request, timeout_ms=REPORT_TIMEOUT_MS
            )
        except UnavailableError:
            return None
        reply = decode_body(response.body, TierReportReply)
        if reply.topics:
            return reply.topics[0].expired
        return None

    async def _proof(self, request: TtlProofRequest) -> tuple[TtlProofReply | None, str]:
        """The tier process's evidence, or why there is none now."""
        try:
            response = await self._hub.ask(TIER_ROLE, HelperRequestCode.TTL_PROOF, request, timeout_ms=PROOF_TIMEOUT_MS)
        except (UnavailableError, InvalidRequestError) as error:
            return None, str(error)
        return decode_body(response.body, TtlProofReply), ""
