"""Cold runs over a tier that is a list of records: answers stay those of asking for each pull, and few are asked."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from thermocline.broker.cold.cold_reads import ColdPull, ColdPullResult
from thermocline.broker.cold.cold_runs import READERS_MAX, ColdRuns
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_record import encode_record

INCARNATION = 7


def record(queue_offset: int) -> bytes:
    return encode_record(
        topic="T",
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=queue_offset * 1_000,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=1_000 + queue_offset,
        store_host=("127.0.0.1", 2),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"b" * (queue_offset % 50),
        properties_text=b"",
    )


RECORDS = [record(offset) for offset in range(400)]


class ListTier:
    """Answers as the tier process does: whole records in order, those before the cut stepped over, some answers short.

    `stop_at`: answers do not reach across these offsets, as they do not across frames that are not there yet.
    """

    def __init__(self, stop_at: frozenset[int] = frozenset()) -> None:
        self.asked: list[ColdPull] = []
        self.stop_at = stop_at
        self.gate: asyncio.Event | None = None
        self.is_away = False
        self._was_asked = asyncio.Event()

    async def ask(self, pull: ColdPull, incarnation: int) -> ColdPullResult:
        assert incarnation == INCARNATION
        self.asked.append(pull)
        self._was_asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.is_away:
            raise UnavailableError("away")
        return self.answer(pull)

    async def until_asked(self, count: int) -> None:
        """Return when it has been asked so often."""
        while len(self.asked) < count:
            self._was_asked.clear()
            await self._was_asked.wait()

    def answer(self, pull: ColdPull) -> ColdPullResult:
        start = max(pull.offset, pull.expired_before_ms - 1_000)
        end, size_bytes = start, 0
        while end < len(RECORDS) and end - start < pull.count_max:
            size_bytes += len(RECORDS[end])
            if end > start and (size_bytes > pull.bytes_max or end in self.stop_at):
                break
            end += 1
        data = b"".join(RECORDS[start:end])
        return ColdPullResult(records=[data] if data else [], message_count=end - start, next_offset=end)


def pull_at(
    offset: int, *, group: str = "G", count_max: int = 32, bytes_max: int = 64 * 1024, expired_before_ms: int = 0
) -> ColdPull:
    return ColdPull(
        topic="T",
        queue_id=0,
        offset=offset,
        count_max=count_max,
        bytes_max=bytes_max,
        codes=None,
        expired_before_ms=expired_before_ms,
        group=group,
    )


def data_of(result: ColdPullResult) -> bytes:
    return b"".join(result.records)


async def pull(runs: ColdRuns, wanted: ColdPull) -> ColdPullResult:
    """As pulls are served: from memory if possible."""
    return runs.held(wanted, INCARNATION) or await runs.pull(wanted, INCARNATION)


async def test_a_reader_that_goes_on_is_served_from_memory() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    offset, read = 0, b""
    while offset < len(RECORDS):
        result = await pull(runs, pull_at(offset))
        assert result.message_count <= 32
        read += data_of(result)
        offset = result.next_offset
    assert read == b"".join(RECORDS)
    # The first pull as it is, then all the rest at once.
    assert [asked.offset for asked in tier.asked] == [0, 32]
    assert tier.asked[0] == pull_at(0)
    assert runs.size_bytes == 0


async def test_a_jump_is_asked_as_it_is() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    for offset in (0, 32, 200, 10):
        assert data_of(await pull(runs, pull_at(offset))) == b"".join(RECORDS[offset : offset + 32])
    assert [asked.count_max for asked in tier.asked] == [32, tier.asked[1].count_max, 32, 32]
    assert runs.size_bytes == 0, "what lay ahead of the jump is let go of"


async def test_groups_and_filters_do_not_share() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    for offset in (0, 32):
        await pull(runs, pull_at(offset))
    assert runs.held(pull_at(64, group="other"), INCARNATION) is None
    for filtered in (replace(pull_at(64), codes=frozenset({1})), replace(pull_at(64), expression="a = 1")):
        assert runs.held(filtered, INCARNATION) is None
        await runs.pull(filtered, INCARNATION)
        assert tier.asked[-1] == filtered
    assert runs.held(pull_at(64), INCARNATION + 1) is None
    assert runs.held(pull_at(64), INCARNATION) is not None


async def test_a_run_starts_after_expired_records() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    await pull(runs, pull_at(0))
    result = await pull(runs, pull_at(32, expired_before_ms=1_100))
    assert data_of(result) == b"".join(RECORDS[100:132])
    assert result.next_offset == 132


async def test_pulls_written_ahead_wait_for_the_run_that_holds_them() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    await pull(runs, pull_at(0))
    tier.gate = asyncio.Event()
    tasks = [asyncio.create_task(runs.pull(pull_at(offset), INCARNATION)) for offset in (32, 64, 96)]
    elsewhere = asyncio.create_task(runs.pull(pull_at(3), INCARNATION))
    await tier.until_asked(3)
    tier.gate.set()
    answers = await asyncio.gather(*tasks)
    assert [data_of(each) for each in answers] == [b"".join(RECORDS[at : at + 32]) for at in (32, 64, 96)]
    assert data_of(await elsewhere) == b"".join(RECORDS[3:35])
    assert [asked.offset for asked in tier.asked] == [0, 32, 3]


async def test_a_failure_and_a_pull_that_is_given_up_leave_nothing_behind() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    await pull(runs, pull_at(0))
    tier.is_away = True
    with pytest.raises(UnavailableError):
        await pull(runs, pull_at(32))
    tier.is_away, tier.gate = False, asyncio.Event()
    task = asyncio.create_task(runs.pull(pull_at(32), INCARNATION))
    await tier.until_asked(3)
    task.cancel()
    await asyncio.wait([task])
    tier.gate.set()
    assert data_of(await pull(runs, pull_at(32))) == b"".join(RECORDS[32:64])


async def test_memory_is_bounded() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask, run_bytes=8 * 1024, bytes_max=30 * 1024)
    for number in range(20):
        for offset in (0, 32):
            await pull(runs, pull_at(offset, group=f"G{number}", bytes_max=8 * 1024))
        assert runs.size_bytes <= 30 * 1024
    assert runs.held(pull_at(64, group="G0"), INCARNATION) is None
    assert runs.held(pull_at(64, group="G19"), INCARNATION) is not None


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("AB"), st.one_of(st.none(), st.integers(0, 399)), st.integers(1, 40)), max_size=40
    ),
    stop_at=st.frozensets(st.integers(0, 399), max_size=5),
    run_bytes=st.integers(200, 20_000),
    bytes_max=st.integers(200, 20_000),
    pull_bytes_max=st.integers(1, 6_000),
)
def test_every_answer_is_a_right_one(
    steps: list[tuple[str, int | None, int]],
    stop_at: frozenset[int],
    run_bytes: int,
    bytes_max: int,
    pull_bytes_max: int,
) -> None:
    """Of two groups that go on and jump at will: records from the offset on, at least one, and where to go on."""

    async def read() -> None:
        runs = ColdRuns(ListTier(stop_at).ask, run_bytes=run_bytes, bytes_max=bytes_max)
        offsets = {"A": 0, "B": 0}
        for group, jump, count_max in steps:
            offset = offsets[group] if jump is None else jump
            if offset == len(RECORDS):
                continue
            result = await pull(runs, pull_at(offset, group=group, count_max=count_max, bytes_max=pull_bytes_max))
            assert 1 <= result.message_count <= count_max
            assert result.next_offset == offset + result.message_count
            assert data_of(result) == b"".join(RECORDS[offset : result.next_offset])
            offsets[group] = result.next_offset
            assert 0 <= runs.size_bytes <= bytes_max

    asyncio.run(read())


async def test_expired_records_between_others_are_passed_by() -> None:
    """As in a log of RocketMQ, whose store times fall when its clock is set back."""
    expired = range(40, 50)

    class FallenTimes(ListTier):
        def answer(self, pull: ColdPull) -> ColdPullResult:
            whole = super().answer(pull)
            offsets = range(whole.next_offset - whole.message_count, whole.next_offset)
            kept = [RECORDS[each] for each in offsets if each not in expired]
            return replace(whole, records=[b"".join(kept)] if kept else [], message_count=len(kept))

    runs = ColdRuns(FallenTimes().ask)
    data, offset = b"", 0
    while offset < len(RECORDS):
        result = await pull(runs, pull_at(offset))
        assert result.message_count <= 32
        assert result.next_offset > offset
        data, offset = data + data_of(result), result.next_offset
    assert data == b"".join(each for number, each in enumerate(RECORDS) if number not in expired)


async def test_readers_that_never_go_on_are_bounded_too() -> None:
    """As many groups as a client names, on as many queues as there are."""
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    for number in range(READERS_MAX + 10):
        result = await pull(runs, pull_at(5, count_max=1, group=f"g{number}"))
        assert (result.message_count, result.next_offset) == (1, 6)
    assert len(runs._readers) == READERS_MAX
    newest = pull_at(6, count_max=1, group=f"g{READERS_MAX + 9}")
    await pull(runs, newest)
    assert runs.held(replace(newest, offset=7), INCARNATION) is not None, "the newest readers are kept"


async def test_the_run_of_a_client_that_left_goes_and_those_of_others_stay() -> None:
    tier = ListTier()
    runs = ColdRuns(tier.ask)
    pulls = {name: replace(pull_at(0, count_max=8, group=name), reader=name) for name in ("leaving", "staying")}
    for pull in pulls.values():
        first = await runs.pull(pull, INCARNATION)
        await runs.pull(replace(pull, offset=first.next_offset), INCARNATION)
    kept_bytes = runs.size_bytes
    runs.forget("leaving")
    assert 0 < runs.size_bytes == kept_bytes // 2
    offsets = {name: pull.offset + 2 * pull.count_max for name, pull in pulls.items()}
    assert runs.held(replace(pulls["leaving"], offset=offsets["leaving"]), INCARNATION) is None
    assert runs.held(replace(pulls["staying"], offset=offsets["staying"]), INCARNATION) is not None
    runs.forget("staying")
    assert runs.size_bytes == 0
