"""Hot and cold together are one endless log: random histories, read in every way, against plain lists.

A history is appends, seals, local deletion, changes of TTL, topics deleted and made again, time that passes, and
restarts of the tier process and of the broker, clean or not; the tier process may die at any of its requests. Between
the steps the test reads the bounds of each queue, reads it from a random offset and searches it by time; it searches
topics by key, and reads single messages by physical offset. Every answer must be that of `EndlessLog`. In the end the
bucket holds exactly the objects that the ledger's readable versions name.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.boundary.endless_log import EndlessLog, Message
from tests.boundary.whole_broker import GRACE_MS, WholeBroker
from tests.crash import wire
from tests.crash.bucket import listed_keys, named_keys, newest
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.string_hash import tags_code
from thermocline.store.config.store_config import FlushDiskType
from thermocline.tiered.wrappers import Fault

TOPICS = ("Steam", "Brine")
QUEUES = 2
KEYS = ("red", "green", "blue")
TAGS = ("a", "b")
SAMPLES = 4


@dataclass(frozen=True)
class Wanted:
    """The messages that a reader wants of a queue: all, one tag's, or one key's and another tag's."""

    subscription: str
    expression_type: str = "TAG"
    tag: str | None = None
    key: str | None = None

    def has(self, message: Message) -> bool:
        """Whether a message is among them."""
        return self.tag in (None, message.tag) and self.key in (None, message.key)


READERS = (
    Wanted("*"),
    *(Wanted(tag, tag=tag) for tag in TAGS),
    *(Wanted(f"KEYS = '{key}' AND NOT (TAGS <> 'b')", "SQL92", tag="b", key=key) for key in KEYS),
)
COLLECTING_ROUNDS_MAX = 30


@dataclass(frozen=True)
class Append:
    """Messages to one queue, one after the other or as a batch."""

    topic: str
    queue_id: int
    count: int
    body_bytes: int
    is_batch: bool
    seed: int


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    duration_ms: int


@dataclass(frozen=True)
class Seal:
    """Everything that is there goes to the cold tier; a round that also sweeps and collects."""

    topic: str | None


@dataclass(frozen=True)
class DeleteLocalFiles:
    """Local retention deletes all files that it may."""


@dataclass(frozen=True)
class MoveToCold:
    """Both of these, so that there is a boundary to cross."""


@dataclass(frozen=True)
class SetTtl:
    """Another time to live; 0 for ever."""

    topic: str
    ttl_ms: int


@dataclass(frozen=True)
class Remake:
    """A topic is deleted, and made again under the same name."""

    topic: str
    ttl_ms: int
    is_reported_between: bool


@dataclass(frozen=True)
class RestartTier:
    """The tier process ends, another takes over."""


@dataclass(frozen=True)
class CrashTier:
    """It dies at one of the requests that a seal makes, or of the collection that follows; another takes over."""

    calls: int
    is_carried_out: bool


@dataclass(frozen=True)
class RestartBroker:
    """The whole broker stops and starts."""

    is_crash: bool


@dataclass(frozen=True)
class Check:
    """Everything is read."""


Step = (
    Append
    | Pass
    | Seal
    | DeleteLocalFiles
    | MoveToCold
    | SetTtl
    | Remake
    | RestartTier
    | CrashTier
    | RestartBroker
    | Check
)

_topics = st.sampled_from(TOPICS)
_ttls = st.sampled_from((0, 500, 2_000, 10_000))
_appends = st.builds(
    Append,
    topic=_topics,
    queue_id=st.integers(0, QUEUES - 1),
    count=st.integers(1, 12),
    body_bytes=st.sampled_from((120, 60, 1)),
    is_batch=st.booleans(),
    seed=st.integers(0, 1_000),
)
_steps: st.SearchStrategy[Step] = st.one_of(
    _appends,
    _appends,
    _appends,
    _appends,
    st.just(MoveToCold()),
    st.just(MoveToCold()),
    st.builds(Pass, st.sampled_from((1, 100, 700, 3_000))),
    st.builds(Pass, st.sampled_from((1, 100))),
    st.builds(Seal, st.sampled_from((None, *TOPICS))),
    st.just(DeleteLocalFiles()),
    st.builds(SetTtl, _topics, _ttls),
    st.builds(Remake, _topics, _ttls, st.booleans()),
    st.just(RestartTier()),
    st.builds(CrashTier, st.integers(0, 25), st.booleans()),
    st.builds(CrashTier, st.integers(0, 12), st.booleans()),
    st.builds(RestartBroker, st.booleans()),
    st.just(Check()),
)


class History:
    """One case: a broker, and its promises so far."""

    def __init__(self, folder: Path, flush: FlushDiskType, seed: int, witness: Counter[str]) -> None:
        """`witness` counts the events of the cases, so that a test can check that they happened at all."""
        self.broker = WholeBroker(folder, flush=flush)
        self.log = EndlessLog()
        self._witness = witness
        self._random = random.Random(seed)

    async def run(self, steps: list[Step]) -> None:
        """Begin, take every step, check everything, stop."""
        await self.broker.start()
        try:
            for topic in TOPICS:
                await wire.make_topic(self.broker.connection, topic, queues=QUEUES)
                self.log.make_topic(topic, None)
            for step in steps:
                await self.run_step(step)
                await self.check_bounds()
            await self.check_everything()
            await self._check_bucket()
        finally:
            await self.broker.stop(is_crash=True)
            await self.broker.remove_objects()

    async def run_step(self, step: Step) -> None:
        """Take one step."""
        broker, connection = self.broker, self.broker.connection
        match step:
            case Append():
                await self._append(step)
            case Pass():
                broker.clock.now_ms += step.duration_ms
                broker.disk.now_ms = broker.clock.now_ms - 1
            case Seal():
                self._witness["segments"] += len(await wire.seal(connection, step.topic))
            case DeleteLocalFiles():
                await broker.delete_local_files()
            case MoveToCold():
                self._witness["segments"] += len(await wire.seal(connection))
                await broker.delete_local_files()
            case SetTtl():
                await wire.set_ttl(connection, step.topic, step.ttl_ms)
                self.log.set_ttl(step.topic, step.ttl_ms or None, now_ms=broker.clock.now_ms)
            case Remake():
                await wire.delete_topic(connection, step.topic)
                self.log.delete_topic(step.topic)
                if step.is_reported_between:
                    await broker.report()
                await wire.make_topic(connection, step.topic, queues=QUEUES, ttl_ms=step.ttl_ms)
                self.log.make_topic(step.topic, step.ttl_ms or None)
            case RestartTier():
                await broker.stop_tier()
                await broker.start_tier()
            case CrashTier():
                fault = Fault.CRASH_AFTER if step.is_carried_out else Fault.CRASH_BEFORE
                broker.crashes.crash_after(step.calls, fault)
                try:
                    await wire.seal(connection)
                    self._witness["crashes behind a seal"] += 1
                except wire.Refused as refused:
                    if refused.code not in wire.TRY_AGAIN:
                        raise
                    self._witness["crashes in a seal"] += 1
                await broker.stop_tier()
                await broker.start_tier()
            case RestartBroker():
                await broker.stop(is_crash=step.is_crash)
                await broker.start()
            case Check():
                await self.check_everything()

    async def _append(self, step: Append) -> None:
        chance = random.Random(step.seed)
        now_ms = self.broker.clock.now_ms
        rows = [
            (
                f"{step.seed}/{number}/".encode().ljust(step.body_bytes, b"."),
                chance.choice(KEYS),
                chance.choice(TAGS),
            )
            for number in range(step.count)
        ]
        messages = [(body, f"KEYS\x01{key}\x02TAGS\x01{tag}\x02") for body, key, tag in rows]
        connection, topic, queue_id = self.broker.connection, step.topic, step.queue_id
        if step.is_batch:
            answer = await wire.send_batch(connection, topic, queue_id, messages)
            places = [(answer.queue_offset + index, place) for index, place in enumerate(answer.physical_offsets)]
        else:
            answers = await asyncio.gather(
                *(wire.send(connection, topic, queue_id, body, properties=text) for body, text in messages)
            )
            places = [(answer.queue_offset, answer.physical_offsets[0]) for answer in answers]
        for (body, key, tag), (queue_offset, physical_offset) in zip(rows, places, strict=True):
            self.log.append(Message(topic, queue_id, queue_offset, physical_offset, now_ms, key, tag, body))

    # -- checks --------------------------------------------------------------------------------------------------------

    async def check_bounds(self) -> None:
        """Minimum and end of every queue."""
        connection, log, now_ms = self.broker.connection, self.log, self.broker.clock.now_ms
        for topic in log.topics:
            for queue_id in range(QUEUES):
                place = f"{topic}/{queue_id}"
                assert await wire.max_offset(connection, topic, queue_id) == log.end(topic, queue_id), place
                expected = log.minimum(topic, queue_id, now_ms=now_ms)
                assert await wire.min_offset(connection, topic, queue_id) == expected, place

    async def check_everything(self) -> None:
        """Every way to read."""
        await self.check_bounds()
        for topic in self.log.topics:
            for queue_id in range(QUEUES):
                await self._check_reads(topic, queue_id)
                await self._check_times(topic, queue_id)
            for key in KEYS:
                found = await wire.query_key(self.broker.connection, topic, key)
                expected = self.log.with_key(topic, key, now_ms=self.broker.clock.now_ms)[:64]
                assert [record.physical_offset for record in found] == [each.physical_offset for each in expected], key
                for record, message in zip(found, expected, strict=True):
                    check_same(record, message)
                    self._witness["keys cold"] += message.physical_offset < self.broker.store.commit_log.min_offset
        await self._check_views()

    async def _check_reads(self, topic: str, queue_id: int) -> None:
        log, now_ms, end = self.log, self.broker.clock.now_ms, self.log.end(topic, queue_id)
        visible = log.visible(topic, queue_id, now_ms=now_ms)
        starts = {0, log.minimum(topic, queue_id, now_ms=now_ms), self._random.randint(0, end)}
        for start in sorted(starts):
            wanted = self._random.choice(READERS)
            found = await self._read(topic, queue_id, start, wanted)
            expected = [each for each in visible if each.queue_offset >= start and wanted.has(each)]
            assert [record.queue_offset for record in found] == [each.queue_offset for each in expected], (
                f"{topic}/{queue_id} from {start} of {end}, {wanted}"
            )
            for record, message in zip(found, expected, strict=True):
                check_same(record, message)

    async def _read(self, topic: str, queue_id: int, start: int, wanted: Wanted) -> list[MessageRecord]:
        """What a consumer gets that starts at an offset and goes where the answers send it, up to the end."""
        connection, place = self.broker.connection, f"{topic}/{queue_id}"
        end = self.log.end(topic, queue_id)
        minimum = self.log.minimum(topic, queue_id, now_ms=self.broker.clock.now_ms)
        records: list[MessageRecord] = []
        offset = start
        while True:
            count = self._random.choice((1, 3, 32))
            queue = self.broker.store.queues.find(topic, queue_id)
            is_cold = queue is not None and minimum <= offset < queue.min_offset
            pulled = await wire.pull(
                connection,
                topic,
                queue_id,
                offset,
                count=count,
                subscription=wanted.subscription,
                expression_type=wanted.expression_type,
            )
            tier = "cold" if is_cold else "hot"
            self._witness[f"{tier} pulls answered {pulled.code}"] += 1
            self._witness[f"{tier} pulls by {wanted.expression_type} answered {pulled.code}"] += 1
            what = f"{place}/{offset} of [{minimum}, {end}): code {pulled.code}, next {pulled.next_offset}"
            match pulled.code:
                case ResponseCode.SUCCESS:
                    assert pulled.next_offset > offset, what
                    assert pulled.records, what
                    # The hash of a tag may be another tag's; clients look at the tag itself.
                    if wanted.tag is not None:
                        assert {tags_code(record.tags) for record in pulled.records} == {tags_code(wanted.tag)}
                    records += pulled.records
                case ResponseCode.PULL_RETRY_IMMEDIATELY:
                    assert pulled.next_offset > offset, what
                case ResponseCode.PULL_OFFSET_MOVED:
                    assert offset < pulled.next_offset <= minimum, what
                case ResponseCode.PULL_NOT_FOUND:
                    assert offset == end, what
                    return records
                case _:
                    raise AssertionError(what)
            offset = pulled.next_offset

    async def _check_times(self, topic: str, queue_id: int) -> None:
        connection, log, now_ms = self.broker.connection, self.log, self.broker.clock.now_ms
        place = f"{topic}/{queue_id}"
        visible = log.visible(topic, queue_id, now_ms=now_ms)
        earliest_ms = visible[0].store_ms if visible else -1
        assert await wire.earliest_time_ms(connection, topic, queue_id) == earliest_ms, place
        stored = sorted({message.store_ms for message in log.topics[topic].queues.get(queue_id, [])})
        times = self._random.sample(stored, min(SAMPLES, len(stored)))
        queue = self.broker.store.queues.find(topic, queue_id)
        for timestamp_ms in (now_ms, *(time_ms + change for time_ms in times for change in (-1, 0, 1))):
            lower = await wire.offset_by_time(connection, topic, queue_id, timestamp_ms, "lower")
            assert lower == log.first_at_or_after(topic, queue_id, timestamp_ms, now_ms=now_ms), (place, timestamp_ms)
            self._witness["times found cold"] += queue is not None and lower < queue.min_offset
            upper = await wire.offset_by_time(connection, topic, queue_id, timestamp_ms, "upper")
            assert upper == log.last_at_or_before(topic, queue_id, timestamp_ms, now_ms=now_ms), (place, timestamp_ms)

    async def _check_views(self) -> None:
        connection, log, now_ms = self.broker.connection, self.log, self.broker.clock.now_ms
        visible = log.all_visible(now_ms=now_ms)
        for message in self._random.sample(visible, min(SAMPLES, len(visible))):
            check_same(await wire.view(connection, message.physical_offset), message)
            self._witness["views cold"] += message.physical_offset < self.broker.store.commit_log.min_offset
        seen = set(visible)
        hidden = [
            message
            for messages in (log.gone, *(each for topic in log.topics.values() for each in topic.queues.values()))
            for message in messages
            if message not in seen
        ]
        for message in self._random.sample(hidden, min(SAMPLES, len(hidden))):
            with pytest.raises(wire.Refused):
                await wire.view(connection, message.physical_offset)

    async def _check_bucket(self) -> None:
        """When the grace period is over, and what earlier tier processes left has been looked for."""
        broker = self.broker
        await broker.stop_tier()
        await broker.start_tier()
        for _ in range(COLLECTING_ROUNDS_MAX):
            broker.clock.now_ms += GRACE_MS
            await broker.report()
            await wire.seal(broker.connection)
            # Collecting goes on behind the answer to a seal; the next seal waits for it.
            await wire.seal(broker.connection)
            there, named = await listed_keys(broker.objects), await named_keys(broker.objects)
            if there == named and not (await newest(broker.objects)).removed:
                return
        raise AssertionError(f"too much: {sorted(there - named)}, missing: {sorted(named - there)}")


def check_same(record: MessageRecord, message: Message) -> None:
    """A record is the message that was sent."""
    assert (record.topic, record.queue_id, record.queue_offset) == (
        message.topic,
        message.queue_id,
        message.queue_offset,
    )
    assert (record.body, record.keys, record.tags) == (message.body, message.key, message.tag)
    assert (record.store_timestamp_ms, record.physical_offset) == (message.store_ms, message.physical_offset)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """One loop for all cases of a test."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tc-"))
    yield path
    shutil.rmtree(path)


def test_hot_and_cold_are_one_endless_log(runner: asyncio.Runner, folder: Path, case_count: Callable[..., int]) -> None:
    """Whatever the history: every read answers as one endless list with the expired prefix removed."""
    witness: Counter[str] = Counter()

    @settings(
        max_examples=case_count(quick=9, full=30, soak=5_000),
        deadline=None,
        derandomize=case_count(quick=1, soak=0) == 1,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(
        steps=st.lists(_steps, min_size=30, max_size=60), flush=st.sampled_from(FlushDiskType), seed=st.integers(0, 999)
    )
    def run_case(steps: list[Step], flush: FlushDiskType, seed: int) -> None:
        case = Path(tempfile.mkdtemp(dir=folder))
        runner.run(History(case, flush, seed, witness).run(steps))
        shutil.rmtree(case)

    run_case()
    for name in (
        "segments",
        "cold pulls answered 0",
        "cold pulls by SQL92 answered 0",
        "cold pulls by SQL92 answered 20",
        "hot pulls by SQL92 answered 0",
        "hot pulls by SQL92 answered 20",
        "times found cold",
        "keys cold",
        "views cold",
        "crashes in a seal",
    ):
        assert witness[name], f"no case met this: {name}; {witness}"
