"""Helper protocol: the messages between the hot process and its helpers over the unix socket.

Remoting frames with private request codes; bodies are msgpack of the structs below. A helper connects and sends HELLO
with its role, generation and build id; afterwards both sides ask each other over the one connection.

    code     from -> to       asks for
    90001    helper -> hot    HELLO: role, generation, build id (refused when they differ: "restart the broker")
    90002    hot -> tier      QUEUE_TABLE: queues and topics that changed since the last one (all of them after HELLO)
    90003    tier -> hot      CATALOG_TABLE: cold range of queues that changed, gate for local delete
    90004    hot -> tier      COLD_PULL: records of one queue from an offset below the local minimum
    90005    hot -> tier      COLD_OFFSET: offset by time of one queue
    90008    hot -> tier      COLD_MINIMUM: first visible offset of one queue, and its store time
    90006    hot -> tier      COLD_QUERY: records of a topic by key
    90007    hot -> tier      COLD_VIEW: one record by its physical offset
    90009    tier -> hot      FENCED: another writer has taken over the ledger; nothing is committed any more
    90010    hot -> tier      TIER_REPORT: stored and waiting messages, per topic
    90013    hot -> tier      SEAL: seal what is there now; answered when it is committed
    90030    hot -> tier      PURGE: delete now what is hidden of a topic; answered when it is gone
    90014    tier -> hot      STATE_ASK: the part of the state to save that only the hot process holds
    90015    hot -> tier      STATE_ANSWER: that
    90016    tier -> hot      STATE_SAVED: a state snapshot is in the bucket, and how far the log may go by it
    90017    follower -> hot  FOLLOWED_TOPICS: topics of the broker whose ledger is followed, before their queues
    90024    hot -> follower  ENROLLED: whose ledger a slave follows: that of its master's store
    90018    tier -> hot      STORE_ABSENCE: the object store has ceased to answer, or answers again
    90019    hot -> tier      TIER_SETTINGS: settings of the cold tier have changed, those that count at once
    90020    hot -> tier      SCRUB: begin a scrub of the cold tier
    90021    hot -> tier      SCRUB_STATE: how far it has come, or what the last one found
    90022    hot -> tier      READER_LEFT: stop reading for a client that has disconnected
    90023    hot -> tier      DROPPED: messages dropped because of a full disk; all of them after HELLO, then new ones
    90035    hot -> tier      TTL_PROOF: expired data of a topic that the catalog still names or the bucket still stores
    90040    hot -> tier      TIER_COST: requests to the object store by purpose, counted and forecast
    90041    hot -> tier      TIER_METRICS: figures for monitoring
    90011    index -> hot     INDEX_PROGRESS: how far the index is durable
    90012    hot -> index     INDEX_QUERY: physical offsets of a topic's key
    90050    proxy -> hot     PROXY_STATE: the proxy serves, or why it cannot (proxy_link.py)

Answers have RocketMQ's response codes, and one of their own: 90000 REFUSED, the request can never succeed as it is.

Sequence numbers: QUEUE_TABLE and CATALOG_TABLE are numbered by their sender from 1 within a connection, so that a gap
is a bug that ends the connection instead of a silent hole. So does any error in taking a table in (helper_hub.py,
helper_answers.py).
"""

from enum import IntEnum
from typing import Any

import msgspec

from thermocline.broker.cold import (
    ColdKeyQuery,
    ColdPull,
    ColdTimeSearch,
    DroppedRange,
    KeyQuery,
    PinHold,
    QuarantinedRange,
    SteadyReport,
)
from thermocline.remoting.header_codec import Header
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.config import StoreConfig
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.findings import ScrubReport

INDEX_ROLE = "index"
TIER_ROLE = "tier"
PROXY_ROLE = "proxy"
"""The role of a helper; sent in HELLO."""


class HelperResponseCode(IntEnum):
    """Private response code of the unix socket; see helper_answers.py."""

    REFUSED = 90000


class HelperRequestCode(IntEnum):
    """Private request codes of the unix socket."""

    HELLO = 90001
    FENCED = 90009
    TIER_REPORT = 90010
    SEAL = 90013
    PURGE = 90030
    STATE_ASK = 90014
    STATE_ANSWER = 90015
    STATE_SAVED = 90016
    FOLLOWED_TOPICS = 90017
    STORE_ABSENCE = 90018
    TIER_SETTINGS = 90019
    QUEUE_TABLE = 90002
    CATALOG_TABLE = 90003
    COLD_PULL = 90004
    COLD_OFFSET = 90005
    COLD_QUERY = 90006
    COLD_VIEW = 90007
    COLD_MINIMUM = 90008
    INDEX_PROGRESS = 90011
    INDEX_QUERY = 90012
    SCRUB = 90020
    SCRUB_STATE = 90021
    READER_LEFT = 90022
    DROPPED = 90023
    ENROLLED = 90024
    TTL_PROOF = 90035
    TIER_COST = 90040
    TIER_METRICS = 90041
    PROXY_STATE = 90050


class Hello(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A helper introduces itself."""

    role: str
    generation: int
    build_id: int
    pid: int


class HelloReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The answer to HELLO. `was_clean`: whether the stop before this boot was clean."""

    store: StoreConfig
    tier: TierConfig
    store_uuid: str
    cluster_name: str
    broker_name: str
    was_clean: bool


class QueueState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One queue as its local files show it; offsets in messages."""

    topic: str
    queue_id: int
    min_offset: QueueOffset
    end_offset: QueueOffset


class TopicState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One topic: whether it is tiered, and under which time-to-live. `deleted` ends its incarnation, durably.

    `expired_before_ms` is the cut that changes of the time-to-live have fixed; `cut_ms` is where the hot process cuts
    as it says so. Nothing stored at `cut_ms` or later may be dropped before it has said a later one: between two of
    these the time-to-live may have grown.
    """

    topic: str
    incarnation: int
    ttl_ms: int | None
    expired_before_ms: int
    cut_ms: int
    tiered: bool
    deleted: bool = False


class QueueTable(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Queues and topics that changed, as of `log_offset`: every record below it is within the ends reported so far.

    `pressure` asks to seal now because local files must go.
    """

    sequence: int
    log_offset: PhysicalOffset
    topics: list[TopicState]
    queues: list[QueueState]
    pressure: bool


class ColdRange(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What the cold tier serves of one queue: [min_offset, end_offset) of this incarnation. `gaps`: the queue's
    declared holes, [start, end) each."""

    topic: str
    incarnation: int
    queue_id: int
    min_offset: QueueOffset
    end_offset: QueueOffset
    gaps: tuple[tuple[QueueOffset, QueueOffset], ...] = ()


class TierSettings(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The cold tier's settings as they are now."""

    tier: TierConfig


class Dropped(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Offsets that are neither local any more nor known to be committed."""

    ranges: list[DroppedRange]


class ReaderLeft(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The reader of cold pulls that has disconnected."""

    reader: str


class StoreAway(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The object store gives no answer since then, and why; `since_ms` 0: it answers again."""

    since_ms: int
    reason: str


class Fenced(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Why the tier process has stopped committing for good. `is_refused`: it never began, and the broker must not run.
    The prefix belongs to another store, or the object store lets two writers commit or has an untrusted certificate."""

    reason: str
    is_refused: bool = False
    later_epoch: int = 0
    """The epoch of the broker that has taken over; 0: unknown."""


class CatalogTable(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Cold ranges that changed with ledger `version`, which the tier process serves from now on.

    `committed_offset`: every tiered message below this log offset is committed; local files below it may go.
    """

    sequence: int
    version: int
    committed_offset: PhysicalOffset
    ranges: list[ColdRange]


class Enrolled(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """ENROLLED. `store_uuid`: of the master's store; a ledger that another one writes is not followed."""

    store_uuid: str


class ColdPullRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """COLD_PULL. `version` is the ledger version that the caller relies on.

    The answer's body is the records; its header is a ColdPullReply.
    """

    version: int
    incarnation: int
    pull: ColdPull


class ColdPullReply(Header, kw_only=True):
    """Header of a cold pull's answer."""

    message_count: int
    next_offset: QueueOffset


class ColdSearchRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """COLD_OFFSET by time."""

    version: int
    incarnation: int
    search: ColdTimeSearch


class ColdMinimumRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """COLD_MINIMUM: first visible offset of a queue, and its store time."""

    version: int
    incarnation: int
    topic: str
    queue_id: int
    expired_before_ms: int


class ColdMinimumReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """None, None when the cold tier holds nothing visible of the queue."""

    queue_offset: QueueOffset | None
    store_timestamp_ms: int | None


class ColdQueryRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """COLD_QUERY: records by key, newest first."""

    version: int
    incarnation: int
    query: ColdKeyQuery


class ColdViewRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """COLD_VIEW: one record by its physical offset in the log."""

    version: int
    physical_offset: PhysicalOffset


class ColdRecordReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One record of a COLD_QUERY's or COLD_VIEW's answer, which is a list of them."""

    physical_offset: PhysicalOffset
    topic: str
    store_timestamp_ms: int
    record: bytes


class ColdOffsetReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """None when there is no record on that side of the time."""

    queue_offset: QueueOffset | None


class IndexProgress(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """INDEX_PROGRESS: every record below `durable_offset` is durably indexed, the last one stored at this time."""

    durable_offset: PhysicalOffset
    store_timestamp_ms: int


class IndexQueryRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """INDEX_QUERY; the index is brought up to `up_to_offset` first."""

    query: KeyQuery
    up_to_offset: PhysicalOffset


class IndexQueryReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Physical offsets, newest first, and the last record that the index has taken in."""

    physical_offsets: list[PhysicalOffset]
    last_store_timestamp_ms: int
    last_physical_offset: PhysicalOffset


class TierReportRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """TIER_REPORT of one topic or of all; with `visible_from_ms`, what a cut there would take as well; `with_pins`: and
    what pins hold, which takes a listing of the bucket."""

    topic: str | None
    visible_from_ms: int | None
    with_pins: bool = False


class QueueTierReport(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The tier process's report on one queue."""

    queue_id: int
    cold_end: QueueOffset
    waiting_bytes: int
    first_waiting_ms: int | None


class ExpiredParts(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What a cut deletes of a topic: whole segments and packs, in so many objects. Expired data in others stays:
    `partly_*` are segments that are deleted when the newest message in them has expired too, stored at
    `partly_max_store_ms` at the latest; `held_bytes` (at least) are in packs that stay for their other contents."""

    segments: int
    packs: int
    raw_bytes: int
    stored_bytes: int
    objects: int
    partly_segments: int
    partly_stored_bytes: int
    partly_max_store_ms: int | None
    held_bytes: int


class TopicTierReport(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The tier process's report on one topic. `expired`: if the request had `visible_from_ms`. `first_newest_ms`: store
    time of the newest message in the segment or pack that expires first."""

    topic: str
    segments: int
    raw_bytes: int
    stored_bytes: int
    queues: list[QueueTierReport]
    packs: int = 0
    first_newest_ms: int | None = None
    expired: ExpiredParts | None = None
    quarantined: list[QuarantinedRange] = []
    pins: list[PinHold] = []


class RequestBudgetState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request budget, its remaining part now, and whether it has widened seal ages. `yielded_requests`: made
    beyond it because local files had to go; `is_yielding`: a short time ago."""

    requests_per_hour: int
    available: int = msgspec.field(name="left")
    is_widened: bool
    waiting_topics: int
    yielded_requests: int = 0
    is_yielding: bool = False


class TierReportReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Answer to TIER_REPORT. `version`: -1 before the ledger is open. `requests` (by verb) and bytes: of the object
    store since the tier process began."""

    version: int
    last_error: str
    requests: dict[str, int]
    sent_bytes: int
    received_bytes: int
    topics: list[TopicTierReport]
    last_scrub: ScrubReport | None = None
    outage_ms: int = 0
    budget: RequestBudgetState | None = None
    waits_for_budget: list[str] = []
    """Topics that are due, and wait for the request budget."""
    oldest_waiting: str = ""
    """The topic whose message holds back the local log; empty when none does."""
    steady_scrub: SteadyReport | None = None


class PurgeRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """PURGE of one topic, which may have been deleted."""

    topic: str


class PurgeReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to PURGE. `left_objects`: packs and `.log` parts that hold hidden bytes of the topic still, of which
    `own_segments` belong to segments of its own."""

    packs_rewritten: int
    segments_rewritten: int
    written_bytes: int
    deleted_objects: int
    deleted_bytes: int
    held_by_pin: bool
    left_objects: list[str]
    own_segments: int


class TtlProofRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """TTL_PROOF of one topic, whose messages are visible from `cut_ms` on."""

    topic: str
    incarnation: int
    cut_ms: int


class NamedRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A segment or pack that has expired as a whole and is named still. `is_overdue`: it should not be any more."""

    segment_id: str
    newest_ms: int
    is_overdue: bool
    why: str


class HiddenRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Objects of one segment or pack with hidden bytes, and when they are deleted at the latest (None: unknown).
    `bytes`: of a pack that the catalog names, only the topic's own."""

    segment_id: str
    state: str
    keys: list[str]
    bytes: int
    due_ms: int | None
    why: str


class TtlProofReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to TTL_PROOF. `hidden` are the first of `hidden_count` rows; `cached_bytes`: in memory, of objects that
    the catalog no longer names. `told_cut_ms`: the cut that the tier process has received."""

    version: int
    told_cut_ms: int
    swept_ms: int | None
    sweep_due_ms: int
    named: list[NamedRow]
    hidden: list[HiddenRow]
    hidden_count: int
    hidden_objects: int
    hidden_bytes: int
    visible_objects: int
    visible_bytes: int
    cached_bytes: int


class SealRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """SEAL of one topic, or of all."""

    topic: str | None


class SealedSegment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One segment that a SEAL committed."""

    topic: str
    segment_id: str
    messages: int
    raw_bytes: int
    stored_bytes: int


class SealReply(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Answer to SEAL."""

    segments: list[SealedSegment]


class StateAsk(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """STATE_ASK; the answer carries its number."""

    number: int


class StateAnswer(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """STATE_ANSWER. `popped`: topic, group, queue id, first popped offset without acknowledgement."""

    number: int
    popped: list[tuple[str, str, int, QueueOffset]]


class StateSaved(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """STATE_SAVED: no record may be put at or behind `log_ceiling`."""

    log_ceiling: PhysicalOffset


class FollowedTopic(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One topic of the broker that is followed. `config`: as its state says; None when that does not know it."""

    topic: str
    incarnation: int
    deleted: bool
    ttl_ms: int | None
    expired_before_ms: int
    queue_count: int
    config: dict[str, Any] | None


class FollowedTopics(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """FOLLOWED_TOPICS: those that changed."""

    topics: list[FollowedTopic]


class ScrubRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """SCRUB. `afresh`: a deep one begins with the first segment, wherever the last one stopped."""

    deep: bool
    heal: bool
    afresh: bool
    budget_bytes: int | None
    bytes_per_second: int | None


class ScrubState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to SCRUB and SCRUB_STATE. `number` counts the scrubs of this process; `error`: why it ended early."""

    number: int
    is_running: bool
    error: str
    segment_count: int
    deep_segment_count: int
    read_bytes: int
    report: ScrubReport | None


class CostRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """TIER_COST of one topic or of all. With `is_forecast` also for other settings; None leaves one as it is.

    `ttl_ms`: of the topic, or of all; 0 keeps for ever.
    """

    topic: str | None
    is_forecast: bool
    ttl_ms: int | None
    segment_bytes: int | None
    seal_age_ms: int | None


class CostAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests made for one purpose, by kind, and those of the last `recent_ms`. Every request has one purpose."""

    purpose: str
    requests: dict[str, int]
    errors: int
    sent_bytes: int
    received_bytes: int
    recent_requests: dict[str, int]
    recent_sent_bytes: int
    recent_received_bytes: int


class CostTopic(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests for one topic's own objects, its share of the requests for shared objects, and its stored bytes. The
    empty name stands for data that belongs to no existing topic."""

    topic: str
    requests: dict[str, int]
    sent_bytes: int
    received_bytes: int
    stored_bytes: int
    shared_requests: dict[str, int] = {}
    shared_sent_bytes: int = 0
    shared_received_bytes: int = 0


class CostForecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests per hour by purpose and kind, if the traffic recorded during `recorded_ms` repeats."""

    recorded_ms: int
    raw_bytes_per_hour: float
    segment_bytes: int
    seal_age_ms: int
    requests_per_hour: dict[str, dict[str, float]]
    segments_per_hour: float
    packs_per_hour: float
    commits_per_hour: float
    stored_bytes: float
    growth_bytes_per_hour: float


class CostReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to TIER_COST. `stored_bytes` are live, `removed_bytes` wait for the end of the grace period."""

    started_ms: int
    now_ms: int
    recent_ms: int
    accounts: list[CostAccount]
    topics: list[CostTopic]
    stored_bytes: int
    removed_bytes: int
    budget: RequestBudgetState | None
    forecast: CostForecast | None
