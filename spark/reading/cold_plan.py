"""resolve_plan: resolves the options of a read to its plan; everything that can change is read here, once.

    version     the newest of each broker's catalog, or `snapshotVersion`
    expiry      a message is visible when its store time is at least max(expired_before_ms, moment - ttl), the moment
                being now or a later `snapshotTimestamp`. A named version is read under today's settings: messages that
                have expired, or whose topic was deleted, stay invisible. While the pin of `snapshotPin` holds the
                version, expiry is judged as of its opening
    range       of every queue: from `startingOffsets` to `endingOffsets`, within what the catalog holds
    where       queues, segments and frames that a condition rules out are in no task
    holes       offsets that were declared lost are stepped over, with a warning; any other gap is data loss

One catalog a broker is read, with the requested topics only: a few GETs, and one for each pack that holds a topic. Only
the brokers under a prefix are listed. `pinned_options` turns a plan into options with which other reads resolve to the
same rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
)
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.access.blocking_store import BlockingStore, OpenStore, blocking_store
from thermocline.spark.access.counted_store import CountedStore
from thermocline.spark.access.request_counts import RequestCounts
from thermocline.spark.access.store_url import broker_roots, possible_prefixes
from thermocline.spark.decoding.arrow_decoder import RowSelection
from thermocline.spark.reading.empty_queues import EmptyQueues
from thermocline.spark.reading.key_places import prune_by_keys
from thermocline.spark.reading.read_plan import (
    ColdSource,
    ObjectName,
    PlanCounts,
    QueueRange,
    ReadPlan,
    SegmentSlice,
    cut_queue,
    pack_tasks,
)
from thermocline.spark.reading.row_choice import key_sets, row_selection
from thermocline.spark.reading.source_options import EARLIEST, LATEST, QueueName, ReadOptions, SnapshotPin
from thermocline.tiered.catalog import (
    Catalog,
    LostRange,
    PackPieces,
    QueueGaps,
    TopicEntry,
    topic_visible_from_ms,
    with_pieces,
)
from thermocline.tiered.ledger import find_pin, open_catalog
from thermocline.tiered.objects import QuarantinedError, masked_url
from thermocline.tiered.segments import BrokerKeys, QueueRun

logger = logging.getLogger(__name__)

IsKnown: TypeAlias = Callable[[str, Sequence[ColdSource]], bool]


def resolve_plan(
    options: ReadOptions,
    *,
    now_ms: int,
    open_store: OpenStore = blocking_store,
    is_known: IsKnown = lambda topic, sources: False,
) -> ReadPlan:
    """Resolve a read. Messages that `where` rules out are not read; it changes no range. A topic without messages in
    the cold tier is an error, unless `is_known` returns True for it; the pin lists such topics.

    Raises:
        InvalidRequestError: A topic or version is not there, an offset is out of range, an option cannot be used.
        CorruptDataError: Catalog or ledger are damaged, or offsets are missing in the middle of a queue.
        UnavailableError: The store gave no answer, or refused.
    """
    moment_ms = now_ms if options.snapshot_ms is None else options.snapshot_ms
    sources: list[ColdSource] = []
    queues: list[QueueRange] = []
    slices: list[list[SegmentSlice]] = []
    found_topics: set[str] = set()
    in_range: set[tuple[str, str]] = set()
    object_bytes: dict[ObjectName, int] = {}
    requests = RequestCounts()
    for url, root in _broker_places(options, open_store):
        store = open_store(url, options.store)
        catalog = _open(store, root, options, version=_version_of(options, root))
        cuts_ms = _held_cuts(store, catalog, options, root, now_ms=now_ms)
        settings = _newest(store, root, options, catalog) if cuts_ms is None else catalog
        if cuts_ms is None:
            moment_ms = max(moment_ms, now_ms)
        source = ColdSource(
            url=url,
            root=root,
            broker_name=catalog.broker_name,
            version=catalog.version,
            store_uuid=catalog.store_uuid,
        )
        _check_other(source, sources)
        sources.append(source)
        for topic in options.topics:
            entry = _live_topic(catalog, settings, topic)
            if entry is None:
                continue
            entry = store.run(_with_pieces(store, catalog, entry))
            found_topics.add(topic)
            if cuts_ms is not None and topic in cuts_ms:
                visible_from_ms = cuts_ms[topic]
            else:
                visible_from_ms = topic_visible_from_ms(settings, topic, now_ms=moment_ms)
            ranges = _queue_ranges(options, source, entry, visible_from_ms)
            wanted = [cut_queue(queue, entry.segments, _selection(options, queue)) for queue in ranges]
            keys = key_sets(options)
            if keys:
                wanted = prune_by_keys(CountedStore(store, requests), entry.segments, wanted, keys)
            queues += ranges
            slices += wanted
            in_range.update((root, segment_id) for segment_id in _segments_in(entry, ranges))
            object_bytes.update({(root, key): size for key, size in _object_bytes(catalog, entry).items()})
    empty = tuple(topic for topic in options.topics if topic not in found_topics)
    _check_topics(options, sources, empty, is_known)
    check_named(options, {source.broker_name for source in sources})
    if options.snapshot_pin is None and options.fail_on_data_loss:
        _check_queues(options, sources, queues, EmptyQueues(options, open_store=open_store))
        _check_offsets(options, queues)
    return ReadPlan(
        snapshot_ms=moment_ms,
        sources=tuple(sources),
        queues=tuple(queues),
        tasks=tuple(pack_tasks(slices, partition_bytes_max=options.partition_bytes_max)),
        counts=PlanCounts(
            segments=len(in_range),
            segments_pruned=len(in_range - {(part.source.root, part.segment_id) for each in slices for part in each}),
            index_gets=requests.gets,
        ),
        object_bytes=object_bytes,
        empty_topics=empty,
    )


def _check_other(source: ColdSource, sources: Iterable[ColdSource]) -> None:
    """InvalidRequestError when a broker is among `sources` by another URL: each of its messages would come twice."""
    for other in sources:
        if source.store_uuid and (source.root, source.store_uuid) == (other.root, other.store_uuid):
            raise InvalidRequestError(
                "two URLs name one broker, whose messages would come twice; name it once",
                broker=source.root,
                urls=f"{masked_url(other.url)} {masked_url(source.url)}",
            )


def _check_topics(options: ReadOptions, sources: list[ColdSource], empty: tuple[str, ...], is_known: IsKnown) -> None:
    """TopicNotFoundError for a topic of `empty` (those without cold messages) that does not exist."""
    pinned = options.snapshot_pin.empty_topics if options.snapshot_pin is not None else ()
    for topic in empty:
        if topic not in pinned and not is_known(topic, sources):
            raise TopicNotFoundError(
                f"topic {topic!r} has no messages in the cold tier",
                url=" ".join(map(masked_url, options.urls)),
                version=" ".join(f"{source.root}:{source.version}" for source in sources),
            )


def pinned_options(plan: ReadPlan, *, pin_id: str | None = None) -> dict[str, str]:
    """Options with which another read resolves to the same versions and ranges; and to the same expiry, as long as the
    pin of that name holds them.

    Raises:
        InvalidRequestError: Two brokers of the plan have one name: options could say the ranges of one of them only.
    """
    if len({source.broker_name for source in plan.sources}) < len(plan.sources):
        raise InvalidRequestError(
            "two clusters under this URL have brokers of one name; name one cluster: URL/cluster",
            brokers=" ".join(source.root for source in plan.sources),
        )
    cuts_ms: dict[str, dict[str, int]] = {source.root: {} for source in plan.sources}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for queue in plan.queues:
        cuts_ms[queue.source.root][queue.topic] = queue.visible_from_ms
        name = str(QueueName(queue.source.broker_name, queue.queue_id))
        starting.setdefault(queue.topic, {})[name] = queue.start_offset
        ending.setdefault(queue.topic, {})[name] = queue.end_offset
    pinned = {
        "snapshotVersion": json.dumps({source.root: source.version for source in plan.sources}, sort_keys=True),
        "snapshotTimestamp": str(plan.snapshot_ms),
        "startingOffsets": json.dumps(starting, sort_keys=True),
        "endingOffsets": json.dumps(ending, sort_keys=True),
    }
    if pin_id is not None:
        pinned["snapshotPin"] = str(SnapshotPin(pin_id=pin_id, cuts_ms=cuts_ms, empty_topics=plan.empty_topics))
    return pinned


# -- catalogs ------------------------------------------------------------------------------------------------------


def _broker_places(options: ReadOptions, open_store: OpenStore) -> list[tuple[str, str]]:
    """URL of the prefix and root of every broker that the read's URLs name, each once."""
    places: dict[tuple[str, str], None] = {}
    for url in options.urls:
        for prefix_url, under in possible_prefixes(url):
            store = open_store(prefix_url, options.store)
            roots = store.run(broker_roots(store.store, under))
            places |= {(prefix_url, root): None for root in roots}
            if roots:
                break
        else:
            raise ObjectNotFoundError("there is no cold tier at this URL", url=masked_url(url))
    if "" in options.snapshot_versions and len(places) > 1:
        raise InvalidRequestError(
            'several brokers are read; name a version for each: {"cluster/broker": version}', option="snapshotVersion"
        )
    return list(places)


def _version_of(options: ReadOptions, root: str) -> int | None:
    versions = options.snapshot_versions
    if not versions:
        return None
    version = versions.get(root, versions.get(""))
    if version is None:
        raise InvalidRequestError("no version is named for a broker of the read", option="snapshotVersion", broker=root)
    return version


def _open(store: BlockingStore, root: str, options: ReadOptions, *, version: int | None) -> Catalog:
    catalog = open_catalog(store.store, BrokerKeys(root), version=version, only_topics=frozenset(options.topics))
    return store.run(catalog)


async def _with_pieces(store: BlockingStore, catalog: Catalog, entry: TopicEntry) -> TopicEntry:
    """The topic's entry with its pieces in packs: one GET for each pack that holds it."""
    found = await with_pieces(PackPieces(store.store), catalog, entry.topic)
    assert found is not None
    return found


def _object_bytes(catalog: Catalog, entry: TopicEntry) -> dict[str, int]:
    """The sizes of packs and other objects that hold more than the records of one segment."""
    sizes = {each.log.key: each.idx.end for each in entry.segments if each.log.key == each.idx.key}
    packed = catalog.packed.get(entry.topic)
    packs = [catalog.packs[pack_id] for pack_id in packed.packs] if packed is not None else []
    return sizes | {pack.key: pack.object_bytes for pack in packs}


def _held_cuts(
    store: BlockingStore, catalog: Catalog, options: ReadOptions, root: str, *, now_ms: int
) -> Mapping[str, int] | None:
    """What had expired by topic when the version was opened, while the pin that was made then holds it; else None."""
    held = options.snapshot_pin
    if held is None or not options.snapshot_versions:
        return None
    pin = store.run(find_pin(store.store, BrokerKeys(root), held.pin_id))
    if pin is None or pin.version != catalog.version or pin.until_ms <= now_ms:
        logger.warning("the snapshot is closed: messages that have expired since are left out broker=%s", root)
        return None
    return held.cuts_ms.get(root, {})


def _newest(store: BlockingStore, root: str, options: ReadOptions, catalog: Catalog) -> Catalog:
    """The newest catalog, whose settings hold today; the one at hand when that is it."""
    if not options.snapshot_versions:
        return catalog
    return _open(store, root, options, version=None)


def _live_topic(catalog: Catalog, settings: Catalog, topic: str) -> TopicEntry | None:
    """The topic at the catalog's version, unless it has been deleted since."""
    entry, current = catalog.topics.get(topic), settings.topics.get(topic)
    if entry is None or entry.deleted or current is None or current.deleted:
        return None
    return entry if entry.incarnation == current.incarnation else None


# -- ranges --------------------------------------------------------------------------------------------------------


def _queue_ranges(
    options: ReadOptions, source: ColdSource, entry: TopicEntry, visible_from_ms: int
) -> list[QueueRange]:
    """The range to read of every wanted queue of a topic that has messages."""
    runs: dict[int, list[QueueRun | LostRange]] = {}
    for segment in entry.segments:
        for run in segment.runs:
            runs.setdefault(run.queue_id, []).append(run)
    for kept in entry.quarantine:
        for lost in kept.lost if kept.segment.max_store_ms >= visible_from_ms else ():
            runs.setdefault(lost.queue_id, []).append(lost)
    ranges: list[QueueRange] = []
    for queue_id in sorted(runs):
        name = QueueName(source.broker_name, queue_id)
        if not options.wants_queue(name):
            continue
        queue_runs = sorted(runs[queue_id], key=lambda run: run.start_offset)
        start, end = _offset_range(options, entry.topic, name, queue_runs)
        # Expired runs are not deleted in the order of offsets: another topic may keep a pack.
        first = next((run for run in queue_runs if _holds_visible(run, visible_from_ms)), None)
        covered_from = first.start_offset if first is not None else end
        _check_coverage(options, entry, name, queue_runs, max(start, covered_from), end)
        ranges.append(
            QueueRange(
                source=source,
                topic=entry.topic,
                incarnation=entry.incarnation,
                queue_id=queue_id,
                start_offset=start,
                end_offset=end,
                visible_from_ms=visible_from_ms,
                gaps=QueueGaps.of(
                    (hole.start_offset, hole.end_offset) for hole in entry.holes if hole.queue_id == queue_id
                ),
                whole_from=_whole_from(options, queue_runs, start, end, visible_from_ms),
            )
        )
    return ranges


def _whole_from(
    options: ReadOptions,
    runs: Sequence[QueueRun | LostRange],
    start: QueueOffset,
    end: QueueOffset,
    visible_from_ms: int,
) -> QueueOffset | None:
    """The offset behind all runs that hold visible messages from before `startingTimestamp`; None when no run does."""
    starting_ms = options.starting_ms
    if starting_ms is None or starting_ms <= visible_from_ms:
        return None
    earlier = [
        run.end_offset
        for run in runs
        if isinstance(run, QueueRun) and run.min_store_ms < starting_ms and _holds_visible(run, visible_from_ms)
    ]
    found = min(max(earlier, default=start), end)
    return found if found > start else None


def check_named(options: ReadOptions, broker_names: Collection[str]) -> None:
    """InvalidRequestError when offsets name another topic or broker: the read would begin at the oldest message."""
    brokers = {"", *broker_names}
    for option, bounds in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        topics = {topic for topic, _ in bounds.offsets}
        if topics and topics.isdisjoint(options.topics):
            raise InvalidRequestError(
                f"the offsets are of {', '.join(sorted(topics))}, which is not read",
                option=option,
                topics=",".join(options.topics),
            )
        for topic, queue in bounds.offsets:
            if queue.broker_name not in brokers and topic in options.topics and options.fail_on_data_loss:
                raise InvalidRequestError(
                    f"an offset names queue {queue}, whose broker is not in this cold tier;"
                    " failOnDataLoss=false reads what is there",
                    option=option,
                    topic=topic,
                    brokers=",".join(sorted(brokers - {""})),
                )


def _check_queues(
    options: ReadOptions, sources: Sequence[ColdSource], found: Iterable[QueueRange], empty: EmptyQueues
) -> None:
    """InvalidRequestError when the option `queues` names a queue that no broker has: the read would be empty."""
    names = {QueueName(name, each.queue_id) for each in found for name in (each.source.broker_name, "")}
    for queue in sorted((options.queues or frozenset()) - names):
        if not empty.may_have_queue(queue, sources):
            raise InvalidRequestError(
                f"no broker in this cold tier has queue {queue}; failOnDataLoss=false reads what is there",
                option="queues",
                topic=",".join(options.topics),
                brokers=",".join(sorted(source.broker_name for source in sources)),
            )


def _check_offsets(options: ReadOptions, found: Iterable[QueueRange]) -> None:
    """OffsetOutOfRangeError when an offset is of a queue without a message in the cold tier: it would not count."""
    names = {
        (each.topic, QueueName(broker_name, each.queue_id))
        for each in found
        for broker_name in (each.source.broker_name, "")
    }
    for option, bounds in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        for (topic, queue), offset in bounds.offsets.items():
            is_read = topic in options.topics and options.wants_queue(queue)
            if is_read and offset > 0 and (topic, queue) not in names:
                raise OffsetOutOfRangeError(
                    f"offset {offset} of queue {queue} is not in the cold tier, which has no message of the queue;"
                    " failOnDataLoss=false reads what is there",
                    option=option,
                    topic=topic,
                )


def _holds_visible(run: QueueRun | LostRange, visible_from_ms: int) -> bool:
    """Whether it may hold a message that has not expired."""
    return isinstance(run, LostRange) or run.max_store_ms >= visible_from_ms


def _offset_range(
    options: ReadOptions, topic: str, queue: QueueName, runs: Sequence[QueueRun | LostRange]
) -> tuple[QueueOffset, QueueOffset]:
    """Start and end of the read of a queue, within the offsets that the cold tier holds or has lost."""
    earliest, latest = runs[0].start_offset, runs[-1].end_offset
    found: list[QueueOffset] = []
    for option, bounds in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        offset = bounds.offset_of(topic, queue)
        offset = {EARLIEST: earliest, LATEST: latest}.get(offset, offset)
        if not earliest <= offset <= latest:
            problem = "is not in the cold tier any more" if offset < earliest else "is not in the cold tier yet"
            if options.fail_on_data_loss:
                raise OffsetOutOfRangeError(
                    f"offset {offset} of queue {queue} {problem}; failOnDataLoss=false reads what is there",
                    option=option,
                    topic=topic,
                    earliest=earliest,
                    latest=latest,
                )
            logger.warning("offset %s topic=%s queue=%s offset=%d", problem, topic, queue, offset)
            offset = min(max(offset, earliest), latest)
        found.append(offset)
    return found[0], max(found)


def _check_coverage(
    options: ReadOptions,
    entry: TopicEntry,
    queue: QueueName,
    runs: Sequence[QueueRun | LostRange],
    start: QueueOffset,
    end: QueueOffset,
) -> None:
    """Raise for an offset of the range that is neither in a run nor in a declared hole: it is lost."""
    for run in runs:
        if isinstance(run, LostRange) and run.start_offset < end and start < run.end_offset:
            lost: dict[str, object] = {
                "topic": entry.topic,
                "queue": queue,
                "offsets": f"[{max(start, run.start_offset)}, {min(end, run.end_offset)})",
                "objects": _damaged_objects(entry, run),
            }
            if options.fail_on_data_loss:
                raise QuarantinedError("records are lost; failOnDataLoss=false reads what is there", **lost)
            logger.warning("records are lost %s", lost)
    holes = [(hole.start_offset, hole.end_offset) for hole in entry.holes if hole.queue_id == queue.queue_id]
    position = start
    for run_start, run_end in sorted([*((run.start_offset, run.end_offset) for run in runs), *holes]):
        if run_start > position and position < end:
            missing = {"topic": entry.topic, "queue": queue, "offsets": f"[{position}, {min(run_start, end)})"}
            if options.fail_on_data_loss:
                raise CorruptDataError(
                    "offsets are missing from the cold tier; failOnDataLoss=false reads what is there", **missing
                )
            logger.warning("offsets are missing from the cold tier %s", missing)
        position = max(position, run_end)
    for hole_start, hole_end in sorted(holes):
        if max(start, hole_start) < min(end, hole_end):
            logger.warning(
                "offsets declared lost are stepped over topic=%s queue=%s offsets=[%d, %d)",
                entry.topic,
                queue,
                max(start, hole_start),
                min(end, hole_end),
            )


def _damaged_objects(entry: TopicEntry, lost: LostRange) -> str:
    parts = [part for kept in entry.quarantine if lost in kept.lost for part in kept.damage]
    return ", ".join(f"{part.key} ({part.problem})" for part in parts)


def _selection(options: ReadOptions, queue: QueueRange) -> RowSelection:
    """The wanted rows of a queue; none when the condition rules it out."""
    return row_selection(
        options,
        topic=queue.topic,
        queue=QueueName(queue.source.broker_name, queue.queue_id),
        start=queue.start_offset,
        end=queue.end_offset,
        visible_from_ms=queue.visible_from_ms,
    )


def _segments_in(entry: TopicEntry, ranges: Sequence[QueueRange]) -> Iterator[str]:
    """The segments that hold offsets of these ranges."""
    by_queue = {queue.queue_id: queue for queue in ranges}
    for segment in entry.segments:
        for run in segment.runs:
            queue = by_queue.get(run.queue_id)
            if queue is not None and run.start_offset < queue.end_offset and queue.start_offset < run.end_offset:
                yield segment.segment_id
                break
