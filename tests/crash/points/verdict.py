"""Verdict: what is to be true of a broker that has come back, whatever it was stopped at.

    messages   every acknowledged one is read once, at its offset, byte for byte; nothing else but what may have been
               written when it stopped, behind all others; nothing that has expired
    bucket     after one garbage collection it holds what the ledger's readable versions name, and nothing more; no
               offset is stored there twice, in segments or packs

Read is as pulls are: by `PullFinder`, which asks the hot tier or the cold one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise

from tests.crash.bucket import KEYS, listed_keys
from tests.crash.points.play import QUEUES, RETRY_DELAY_S, TTL_ATTRIBUTE
from tests.crash.points.promises import Message, Promises
from tests.crash.points.small_broker import SmallBroker
from thermocline.broker.cold.tiered_topics import is_tiered_topic
from thermocline.broker.pulls.pull_finder import ColdNeeded
from thermocline.broker.pulls.pull_request import PullRequest
from thermocline.broker.pulls.request_expressions import ALL
from thermocline.remoting.command import SerializeType
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.catalog.catalog import Catalog, apply
from thermocline.tiered.ledger.checkpoint import load_head_if_good
from thermocline.tiered.ledger.ledger_reader import find_entry, open_catalog
from thermocline.tiered.ledger.pins import list_pins
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.state.newest_state import list_names
from thermocline.tiered.state.snapshot import KEPT_COUNT

PULLS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """One record as a reader gets it."""

    record: MessageRecord
    data: bytes


async def read_queue(broker: SmallBroker, topic: str, queue_id: int) -> list[Found]:
    """Everything that is visible of a queue, by pulls from its beginning to its end."""
    found: list[Found] = []
    offset = 0
    for _ in range(PULLS_MAX):
        header = PullMessageRequestHeader(
            consumer_group="reader", topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=5, sys_flag=0
        )
        request = PullRequest(
            _Reader(),  # type: ignore[arg-type]
            header,
            code=11,
            opaque=0,
            serialize_type=SerializeType.JSON,
        )
        try:
            answer = broker.finder.find(request, ALL)
        except ColdNeeded:
            try:
                answer = await broker.finder.find_cold(request, ALL)
            except UnavailableError:
                await asyncio.sleep(RETRY_DELAY_S)
                continue
        match answer.code:
            case ResponseCode.SUCCESS:
                for buffer in answer.buffers:
                    view = memoryview(buffer)
                    for record in iterate_records(view):
                        found.append(Found(record, bytes(view[: record.size_bytes])))
                        view = view[record.size_bytes :]
                assert answer.next_offset > offset
            case ResponseCode.PULL_NOT_FOUND:
                return found
            case ResponseCode.PULL_RETRY_IMMEDIATELY | ResponseCode.PULL_OFFSET_MOVED:
                assert answer.next_offset > offset, f"{topic}/{queue_id}/{offset}: {answer.code}, {answer.status}"
        offset = answer.next_offset
    raise AssertionError(f"{topic}/{queue_id}: never comes to an end")


def present_topics(broker: SmallBroker) -> dict[str, int | None]:
    """Topics of users that there are, with their times to live."""
    parts = broker.parts
    return {
        name: parts.tables.topics.time_to_live_ms(name)
        for name in parts.tables.topics
        if is_tiered_topic(name) and TTL_ATTRIBUTE in parts.tables.topics.configs()[name].attributes
    }


async def check_messages(broker: SmallBroker, promises: Promises, *, settles: bool) -> None:
    """Every queue of every topic. `settles`: the broker has just come back; what was not promised may be missing, and
    is forgotten then."""
    if settles:
        promises.settle(present_topics(broker))
    for name, topic in promises.topics.items():
        for queue_id in range(QUEUES):
            found = await read_queue(broker, name, queue_id)
            # Read in one instant: nothing has expired between.
            cut_ms = topic.cut_ms(broker.world.now_ms())
            _check_queue(f"{name}/{queue_id}", found, topic.queues.setdefault(queue_id, []), cut_ms, settles=settles)


def _check_queue(place: str, found: list[Found], messages: list[Message], cut_ms: int, *, settles: bool) -> None:
    for each in found:
        record = each.record
        assert record.store_timestamp_ms >= cut_ms, f"{place}/{record.queue_offset} has expired, and is read"
    offsets = [each.record.queue_offset for each in found]
    assert offsets == sorted(set(offsets)), f"{place}: offsets {offsets}"
    by_body = {each.record.body: each for each in found}
    assert len(by_body) == len(found), f"{place}: a message is read twice: {offsets}"
    kept: list[Message] = []
    for message in messages:
        here = by_body.pop(message.body, None)
        if here is None:
            is_expired = message.store_ms is not None and message.store_ms < cut_ms
            if is_expired and (message.is_durable or not settles):
                kept.append(message)
                continue
            is_forgivable = settles and not message.is_durable
            assert is_forgivable, f"{place}/{message.queue_offset} is lost"
            continue
        record = here.record
        if message.record is None:
            message.queue_offset, message.store_ms, message.record = (
                record.queue_offset,
                record.store_timestamp_ms,
                here.data,
            )
        assert record.queue_offset == message.queue_offset, f"{place}/{message.queue_offset} has moved"
        assert here.data == message.record, f"{place}/{message.queue_offset} is another"
        kept.append(message)
    assert not by_body, f"{place}: never sent: {sorted(by_body)}"
    if settles:
        lost = [message for message in messages if message not in kept]
        first_lost = min((messages.index(message) for message in lost), default=len(messages))
        later = [message for message in messages[first_lost:] if message in kept and message.store_ms is not None]
        assert all(message.store_ms is not None and message.store_ms < cut_ms for message in later), (
            f"{place}: one is missing before others that are there"
        )
        messages[:] = kept
        for message in messages:
            # What a consumer has seen does not go away any more; it was flushed when the store was opened.
            message.is_durable = True


async def named_keys(bucket: ObjectStore, now_ms: int) -> set[str]:
    """Every object that some readable version names, what it takes to read these versions, the newest states, and pins
    that hold or whose version is readable still.

    A checkpoint that no entry tells of counts if it is whole: its head may have come late, when its writer had been
    followed by another that took what it had put until then for garbage.
    """
    head, there = await open_catalog(bucket, KEYS), await listed_keys(bucket)
    listed_versions = {mark.version for mark in head.checkpoints}
    named = {KEYS.head_hint}
    catalog = await open_catalog(bucket, KEYS, version=head.readable_from) if head.readable_from else None
    first = head.readable_from if catalog is not None else 1
    for version in range(first, head.version + 1):
        entry = await find_entry(bucket, KEYS, version)
        assert entry is not None, f"version {version} of [{first}, {head.version}] is gone"
        if catalog is None or version > first:
            before = catalog if catalog is not None else type(head).empty()
            catalog = apply(before, entry)
        named |= catalog.live_keys()
        named.add(KEYS.ledger_entry(version))
        checkpoint = await load_head_if_good(bucket, KEYS, version)
        if checkpoint is not None and (version in listed_versions or there.issuperset(checkpoint.object_keys)):
            named.add(KEYS.checkpoint_head(version))
            named.update(checkpoint.object_keys)
    assert catalog == head, "the ledger's sum is not what its head says"
    for name in (await list_names(bucket, KEYS))[-KEPT_COUNT:]:
        named.add(KEYS.state(epoch=name.epoch, sequence=name.sequence))
    for pin in await list_pins(bucket, KEYS):
        if pin.until_ms > now_ms or pin.version >= head.readable_from:
            named.add(KEYS.pin(pin.pin_id))
    return named


async def check_nothing_missing(bucket: ObjectStore, now_ms: int) -> set[str]:
    """What is named is there, of every version that can be read; what else there is.

    A broker may be at work: it counts what a listing shows before and after the names are read.
    """
    there, named = await listed_keys(bucket), await named_keys(bucket, now_ms)
    while (there_now := await listed_keys(bucket)) != there:
        there, named = there_now, await named_keys(bucket, now_ms)
    assert not named - there, f"missing: {sorted(named - there)}"
    return there - named


async def check_bucket(bucket: ObjectStore, now_ms: int) -> None:
    """The bucket holds exactly the objects that the ledger names."""
    orphans = await check_nothing_missing(bucket, now_ms)
    assert not orphans, f"orphans: {sorted(orphans)}"
    check_nothing_twice(await open_catalog(bucket, KEYS))


def check_nothing_twice(catalog: Catalog) -> None:
    """Each offset of a queue is stored in one segment or one pack."""
    for name, entry in catalog.topics.items():
        ranges = [(run.queue_id, run.start_offset, run.end_offset) for run in entry.ranges()]
        packed = catalog.packed.get(name)
        for pack in [catalog.packs[pack_id] for pack_id in (packed.packs if packed is not None else ())]:
            table = pack.table()
            for piece in map(table.piece, pack.indexes_of(name)):
                if piece.incarnation == entry.incarnation:
                    ranges += [(queue.queue_id, queue.start_offset, queue.end_offset) for queue in piece.queues]
        ranges.sort()
        for (queue_id, _, end_offset), (next_queue_id, start_offset, _) in pairwise(ranges):
            is_behind = queue_id != next_queue_id or end_offset <= start_offset
            assert is_behind, f"{name}/{queue_id}/{start_offset} is in the cold tier twice"


class _Reader:
    """Stands in for a connection of a cold pull; nothing is sent to it."""

    remote_address = "verdict"
