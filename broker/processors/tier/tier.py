"""Cold tier requests of the `thermocline` command; RocketMQ does not have them. Codes: remoting/private_requests.py.

    90101 TIER_STATUS    topic?           queues with their local, cold and waiting ranges; the helper processes
    90102 TIER_SEAL      topic?           flush, report and seal what is there now; answered when it is committed
    90103 TIER_EXPLAIN   topic, queueId?  the same in sentences: where each range is, what happens next and why
    90130 TIER_PURGE     topic            delete hidden data of a topic now; the topic may have been deleted

Answers are JSON. Figures of the cold tier come from the tier process; while it is away the answers say so.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from thermocline.broker.cold import ColdReads, DroppedRange, is_tiered_topic
from thermocline.broker.helpers import (
    TIER_ROLE,
    HelperHub,
    HelperRequestCode,
    HelperStatus,
    PurgeReply,
    PurgeRequest,
    SealReply,
    SealRequest,
    TierReportReply,
    TierReportRequest,
    TopicTierReport,
    decode_body,
)
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import TopicTable
from thermocline.broker.tier import QueueExplanation, QueueTierState, TierCondition, TopicTierState, explain
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidParameterError, TopicNotFoundError, UnavailableError
from thermocline.remoting.private_requests import PrivateRequestCode, TierHeader, TierPurgeHeader
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import FileVerdict, RetentionGate, verdict_of
from thermocline.tiered.objects import masked_url

REPORT_TIMEOUT_MS = 10_000
SEAL_TIMEOUT_MS = 600_000


class TierProcessor:
    """Serves the cold tier requests."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        cold: ColdReads,
        clock: Callable[[], int],
        hub: HelperHub,
        helpers: Callable[[], Sequence[HelperStatus]],
        report_now: Callable[[], Awaitable[None]],
        gate: Callable[[], RetentionGate],
        dropped: Callable[[], Sequence[DroppedRange]] = list,
        fenced_by: Callable[[], str] = str,
    ) -> None:
        """`report_now`: flush, write queue files and send all changes to the tier process. `gate`: the conditions of
        local deletion. `dropped`: ranges dropped because of a full disk. `fenced_by`: the broker that has fenced this
        one, as a text; empty if none has."""
        self._gate = gate
        self._settings = settings
        self._store = store
        self._topics = topics
        self._stats = stats
        self._cold = cold
        self._clock = clock
        self._hub = hub
        self._helpers = helpers
        self._report_now = report_now
        self._dropped = dropped
        self._fenced_by = fenced_by

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            PrivateRequestCode.TIER_STATUS: self.status,
            PrivateRequestCode.TIER_SEAL: self.seal,
            PrivateRequestCode.TIER_EXPLAIN: self.explain,
            PrivateRequestCode.TIER_PURGE: self.purge,
        }

    async def status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90101."""
        header = command.header(TierHeader)
        states, reply = await self._states(header.topic, None)
        body = {
            "coldUrl": masked_url(self._settings.tier.cold_url),
            "ledgerVersion": reply.version if reply and reply.version >= 0 else None,
            "lastError": reply.last_error if reply else "the tier process is away",
            "cold": self._cold.health().fields(),
            "requests": reply.requests if reply else {},
            "sentBytes": reply.sent_bytes if reply else 0,
            "receivedBytes": reply.received_bytes if reply else 0,
            "servedBytes": self._stats.served_bytes,
            "helpers": self._helper_rows(),
            "dropped": [each for each in self._dropped() if header.topic in (None, each.topic)],
            "topics": states,
            "lastScrub": _scrub_row(reply) if reply else None,
            "steadyScrub": reply.steady_scrub if reply else None,
            "budget": reply.budget if reply else None,
            "oldestWaiting": reply.oldest_waiting if reply else None,
        }
        return RemotingCommand.response(command, body=msgspec.json.encode(body))

    async def explain(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90103."""
        header = command.header(TierHeader)
        states, reply = await self._states(header.topic, header.queue_id, with_pins=True)
        now_ms, tier = self._clock(), self._settings.tier
        is_tier_away = reply is None and tier.is_enabled
        condition = _condition(reply, fenced_by=self._fenced_by())
        files = self._files(now_ms=now_ms)
        rows: list[QueueExplanation] = []
        for number, state in enumerate(states):
            rows += explain(
                state,
                tier,
                now_ms=now_ms,
                is_tier_away=is_tier_away,
                condition=condition,
                verdicts=self._verdicts(state, files, now_ms=now_ms),
            )
            if number % 100 == 99:
                await asyncio.sleep(0)
        return RemotingCommand.response(command, body=msgspec.json.encode({"queues": rows}))

    async def seal(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90102."""
        header = command.header(TierHeader)
        if header.topic is not None:
            self._config(header.topic)
        await self._report_now()
        response = await self._hub.ask(
            TIER_ROLE, HelperRequestCode.SEAL, SealRequest(topic=header.topic), timeout_ms=SEAL_TIMEOUT_MS
        )
        reply = decode_body(response.body, SealReply)
        return RemotingCommand.response(command, body=msgspec.json.encode({"segments": reply.segments}))

    async def purge(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90130."""
        header = command.header(TierPurgeHeader)
        if not is_tiered_topic(header.topic):
            raise InvalidParameterError("the cold tier holds nothing of this topic", topic=header.topic)
        # Hidden data of a topic that is just being deleted would be found under neither incarnation, and stay.
        async with self._topics.alone(header.topic):
            await self._report_now()
        request = PurgeRequest(topic=header.topic)
        response = await self._hub.ask(TIER_ROLE, HelperRequestCode.PURGE, request, timeout_ms=SEAL_TIMEOUT_MS)
        return RemotingCommand.response(command, body=msgspec.json.encode(decode_body(response.body, PurgeReply)))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError("no such topic", topic=topic)
        return config

    async def _report(self, request: TierReportRequest) -> TierReportReply | None:
        """The tier process's report; None while it is away."""
        if not self._hub.is_connected(TIER_ROLE):
            return None
        try:
            response = await self._hub.ask(
                TIER_ROLE, HelperRequestCode.TIER_REPORT, request, timeout_ms=REPORT_TIMEOUT_MS
            )
        except UnavailableError:
            return None
        return decode_body(response.body, TierReportReply)

    async def _states(
        self, topic: str | None, queue_id: int | None, *, with_pins: bool = False
    ) -> tuple[list[TopicTierState], TierReportReply | None]:
        if topic is not None:
            self._config(topic)
        reply = await self._report(TierReportRequest(topic=topic, visible_from_ms=None, with_pins=with_pins))
        reports = {report.topic: report for report in reply.topics} if reply else {}
        names = [topic] if topic is not None else [name for name in self._topics if is_tiered_topic(name)]
        states: list[TopicTierState] = []
        for number, name in enumerate(names):
            states.append(self._state(name, queue_id, reports.get(name)))
            if number % 100 == 99:
                await asyncio.sleep(0)
        return states, reply

    def _state(self, topic: str, queue_id: int | None, report: TopicTierReport | None) -> TopicTierState:
        waiting = {queue.queue_id: queue for queue in report.queues} if report else {}
        queues: list[QueueTierState] = []
        for queue in sorted(self._store.queues.of_topic(topic).values(), key=lambda each: each.queue_id):
            if queue_id is not None and queue.queue_id != queue_id:
                continue
            bounds = self._cold.bounds(topic, queue.queue_id)
            tier_queue = waiting.get(queue.queue_id)
            queues.append(
                QueueTierState(
                    queue_id=queue.queue_id,
                    local_min=queue.min_offset,
                    local_end=queue.next_offset,
                    cold_min=bounds.min_offset if bounds else None,
                    cold_end=bounds.end_offset if bounds else None,
                    waiting_messages=max(0, queue.next_offset - max(tier_queue.cold_end, queue.min_offset))
                    if tier_queue
                    else None,
                    waiting_bytes=tier_queue.waiting_bytes if tier_queue else None,
                    first_waiting_ms=tier_queue.first_waiting_ms if tier_queue else None,
                )
            )
        return TopicTierState(
            topic=topic,
            tiered=is_tiered_topic(topic),
            ttl_ms=self._topics.time_to_live_ms(topic),
            segments=report.segments if report else None,
            raw_bytes=report.raw_bytes if report else None,
            stored_bytes=report.stored_bytes if report else None,
            queues=queues,
            packs=report.packs if report else None,
            first_newest_ms=report.first_newest_ms if report else None,
            quarantined=report.quarantined if report else [],
            pins=report.pins if report else [],
        )

    def _files(self, *, now_ms: int) -> list[FileVerdict]:
        """Why each log file is there: system calls for each, so once for all queues."""
        hour = time.localtime(now_ms / 1_000).tm_hour
        return list(self._store.retention.verdicts(self._gate(), now_ms=now_ms, hour=hour))

    def _verdicts(self, state: TopicTierState, files: list[FileVerdict], *, now_ms: int) -> dict[int, FileVerdict]:
        """By queue id, why the log still holds its first local message."""
        verdicts: dict[int, FileVerdict] = {}
        for each in state.queues:
            queue = self._store.queues.find(state.topic, each.queue_id)
            if queue is None or queue.min_offset >= queue.next_offset:
                continue
            unit = queue.unit(queue.min_offset)
            if not unit.is_empty:
                verdicts[each.queue_id] = verdict_of(files, unit.physical_offset, now_ms=now_ms)
        return verdicts

    def _helper_rows(self) -> list["HelperRow"]:
        return [
            HelperRow(
                name=status.name,
                pid=status.pid,
                restarts=status.restarts,
                last_exit_status=status.last_exit_status,
                state=status.state,
                connected=self._hub.is_connected(status.name),
            )
            for status in self._helpers()
        ]


def _condition(reply: TierReportReply | None, *, fenced_by: str) -> TierCondition:
    if reply is None:
        return TierCondition(fenced_by=fenced_by)
    return TierCondition(
        outage_ms=reply.outage_ms,
        waits_for_budget=frozenset(reply.waits_for_budget),
        requests_per_hour=reply.budget.requests_per_hour if reply.budget is not None else 0,
        is_yielding=reply.budget is not None and reply.budget.is_yielding,
        oldest_waiting=reply.oldest_waiting,
        fenced_by=fenced_by,
    )


def _scrub_row(reply: TierReportReply) -> dict[str, object] | None:
    """The last requested scrub in the answer to TIER_STATUS; `broken`: the damage found by all scrubs."""
    report, steady = reply.last_scrub, reply.steady_scrub
    if report is None:
        return None
    return {
        "finishedMs": report.finished_ms,
        "deep": report.deep,
        "isComplete": report.is_complete,
        "unreadCount": report.unread_count,
        "unreadBytes": report.unread_bytes,
        "findings": len(report.findings),
        "broken": report.broken_count if steady is None else steady.broken_count,
    }


class HelperRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One helper process in the answer to TIER_STATUS."""

    name: str
    pid: int | None
    restarts: int
    last_exit_status: int | None
    state: str
    connected: bool
