"""Request families: every processor of a broker that takes requests from the network, put behind one dispatcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from thermocline.broker.cluster_queues import ClusterQueues
from thermocline.broker.context import BrokerContext
from thermocline.broker.deletion_gate import DeletionGate
from thermocline.broker.dropped_ranges import DroppedRanges
from thermocline.broker.fence import Fence
from thermocline.broker.follower.read_only_processor import ReadOnlyProcessor
from thermocline.broker.follower.source import Source
from thermocline.broker.helper_hub import HelperHub
from thermocline.broker.helpers import Helpers
from thermocline.broker.hot_server import HotServer
from thermocline.broker.index_link import IndexLink
from thermocline.broker.pop_service import PopService
from thermocline.broker.processors.admin import AdminProcessor
from thermocline.broker.processors.assignment import AssignmentProcessor
from thermocline.broker.processors.client import ClientProcessor
from thermocline.broker.processors.consumer_call import ConsumerCallProcessor
from thermocline.broker.processors.consumer_offset import ConsumerOffsetProcessor
from thermocline.broker.processors.cost import CostProcessor
from thermocline.broker.processors.flushed_ranges import FlushedRangesProcessor
from thermocline.broker.processors.group import GroupProcessor
from thermocline.broker.processors.hand_off import HandOffProcessor
from thermocline.broker.processors.lock import LockProcessor
from thermocline.broker.processors.recall import RecallProcessor
from thermocline.broker.processors.replica import ReplicaProcessor
from thermocline.broker.processors.scrub import ScrubProcessor
from thermocline.broker.processors.send_back import SendBackProcessor
from thermocline.broker.processors.stats import StatsProcessor
from thermocline.broker.processors.tier import TierProcessor
from thermocline.broker.processors.topic import TopicProcessor
from thermocline.broker.processors.ttl import TtlProcessor
from thermocline.broker.store_rounds import StoreRounds
from thermocline.broker.tier_explanation import fenced_by
from thermocline.remoting.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningParts:
    """Parts of a broker that answer for its state. `report_now`: flush, and tell the tier process."""

    hot: HotServer
    pop: PopService
    hub: HelperHub
    helpers: Helpers
    rounds: StoreRounds
    index: IndexLink
    gate: DeletionGate
    fence: Fence
    dropped: DroppedRanges
    report_now: Callable[[], Awaitable[None]]


def make_dispatcher(context: BrokerContext, parts: RunningParts, *, source: Source | None) -> Dispatcher:
    """All of them. `source`: whose cold tier is served, read-only."""
    hot, pop, gate, fence = parts.hot, parts.pop, parts.gate, parts.fence
    log = context.store.commit_log
    return Dispatcher(
        (
            *hot.processors,
            *pop.processors,
            TopicProcessor(context),
            GroupProcessor(context),
            ClientProcessor(context),
            ConsumerOffsetProcessor(context),
            HandOffProcessor(context),
            LockProcessor(context),
            AssignmentProcessor(
                context,
                ClusterQueues(context.topics, context.registration, config=lambda: context.config, clock=context.clock),
            ),
            SendBackProcessor(context),
            RecallProcessor(context),
            StatsProcessor(context),
            ConsumerCallProcessor(context),
            ReplicaProcessor(context),
            AdminProcessor(
                context,
                run_retention=parts.rounds.run_retention,
                dispatch_behind_bytes=lambda: max(0, log.append_offset - parts.index.durable_offset),
            ),
            TierProcessor(
                context,
                parts.hub,
                helpers=parts.helpers.statuses,
                report_now=parts.report_now,
                gate=gate.now,
                dropped=parts.dropped.live,
                fenced_by=lambda: fenced_by(fence.later_epoch) if fence.reason else "",
            ),
            ScrubProcessor(parts.hub),
            TtlProcessor(context, parts.hub, gate=gate.now, report_now=parts.report_now),
            CostProcessor(context, parts.hub),
            FlushedRangesProcessor(context),
        ),
        on_closed=(hot.connection_closed, pop.connection_closed, context.clients.connection_closed),
        before=() if source is None else (ReadOnlyProcessor(source),),
    )
