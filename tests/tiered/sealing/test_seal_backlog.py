"""Seal backlog over local files written record by record."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline.remoting.records.message_record import encode_record
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.sealing.local_files import UNIT, LocalLog, LocalQueues
from thermocline.tiered.sealing.seal_backlog import UNREADABLE_TOLD, SealBacklog, SealPlan, SealPolicy

LOG_FILE_BYTES = 1 << 20
QUEUE_FILE_BYTES = 20 * 7


@dataclass
class LocalStore:
    """A store directory as the hot process leaves it behind a tick."""

    root: Path
    log: bytearray = field(default_factory=bytearray)
    units: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    log_min_offset: int = 0

    def put(self, topic: str, queue_id: int, *, store_ms: int, body_bytes: int = 10) -> None:
        units = self.units.setdefault((topic, queue_id), bytearray())
        record = encode_record(
            topic=topic,
            queue_id=queue_id,
            queue_offset=len(units) // UNIT.itemsize,
            physical_offset=len(self.log),
            flag=0,
            sys_flag=0,
            born_timestamp_ms=store_ms,
            born_host=("127.0.0.1", 1),
            store_timestamp_ms=store_ms,
            store_host=("127.0.0.1", 2),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"b" * body_bytes,
            properties_text=b"",
        )
        units += len(self.log).to_bytes(8, "big") + len(record).to_bytes(4, "big") + bytes(8)
        self.log += record

    def write(self) -> None:
        (self.root / "commitlog").mkdir(exist_ok=True)
        (self.root / "commitlog" / f"{0:020d}").write_bytes(self.log.ljust(LOG_FILE_BYTES, b"\0"))
        for (topic, queue_id), units in self.units.items():
            folder = self.root / "consumequeue" / topic / str(queue_id)
            folder.mkdir(parents=True, exist_ok=True)
            for base in range(0, len(units), QUEUE_FILE_BYTES):
                part = units[base : base + QUEUE_FILE_BYTES].ljust(QUEUE_FILE_BYTES, b"\0")
                (folder / f"{base:020d}").write_bytes(part)

    def backlog(self, policy: SealPolicy, *, cut_ms: int = 0) -> SealBacklog:
        self.write()
        backlog = SealBacklog(
            queues=LocalQueues(RealDisk(), path=str(self.root / "consumequeue"), file_bytes=QUEUE_FILE_BYTES),
            log=LocalLog(RealDisk(), path=str(self.root / "commitlog"), file_bytes=LOG_FILE_BYTES),
            policy=policy,
            log_min_offset=lambda: self.log_min_offset,
        )
        for topic in {topic for topic, _ in self.units}:
            backlog.set_topic(topic, incarnation=1, cut_ms=cut_ms, tiered=topic != "internal", cold_ends={})
        self.report(backlog)
        return backlog

    def report(self, backlog: SealBacklog) -> None:
        self.write()
        for (topic, queue_id), units in self.units.items():
            backlog.set_queue(topic, queue_id, min_offset=0, end_offset=len(units) // UNIT.itemsize)
        backlog.set_reported_offset(len(self.log))
        backlog.account()


def offsets(plan: SealPlan | None) -> dict[int, tuple[int, int]]:
    return {} if plan is None else {run.queue_id: (run.start_offset, run.end_offset) for run in plan.runs}


def test_a_topic_is_due_by_age_size_or_pressure(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("old", 0, store_ms=1_000)
    store.put("young", 0, store_ms=5_000)
    for _ in range(3):
        store.put("large", 0, store_ms=5_000, body_bytes=40_000)
    store.put("internal", 0, store_ms=1_000)
    backlog = store.backlog(SealPolicy(segment_bytes=100_000, age_ms=10_000))
    assert backlog.due(now_ms=6_000, pressure=False) == ["large"]
    assert backlog.due(now_ms=11_000, pressure=False) == ["old", "large"]
    assert backlog.due(now_ms=6_000, pressure=True) == ["old", "large", "young"]
    assert backlog.next_due_ms() == 11_000


def test_a_topic_is_due_by_age_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """The store's clock stands still for as long, so its records come from the future: they are sealed in time."""
    store = LocalStore(tmp_path)
    for queue_id in (0, 1):
        store.put("ahead", queue_id, store_ms=90_000_000)
    backlog = store.backlog(SealPolicy(age_ms=10_000))
    assert backlog.due(now_ms=1_000, pressure=False) == []
    assert backlog.next_due_ms() == 11_000
    assert backlog.due(now_ms=10_999, pressure=False) == []
    assert backlog.due(now_ms=11_000, pressure=False) == ["ahead"]
    plan = backlog.plan("ahead", flush_offset=len(store.log))
    assert plan is not None
    backlog.committed(plan)
    store.put("ahead", 0, store_ms=90_000_000)
    store.report(backlog)
    assert backlog.due(now_ms=11_001, pressure=False) == [], "one seal in an age, as always"


def test_a_plan_stops_at_the_flush_offset(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("topic", 0, store_ms=1)
    flushed = len(store.log)
    store.put("topic", 0, store_ms=1)
    backlog = store.backlog(SealPolicy())
    assert offsets(backlog.plan("topic", flush_offset=flushed)) == {0: (0, 1)}
    assert backlog.plan("topic", flush_offset=flushed - 1) is None


def test_a_follower_lets_no_record_wait_that_has_expired(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for store_ms in (1, 2, 8, 9):
        store.put("orders", 0, store_ms=store_ms)
    store.put("orders", 1, store_ms=3)
    backlog = store.backlog(SealPolicy(), cut_ms=8)
    backlog.account()
    assert backlog.committed_offset() == 0
    backlog.skip_expired()
    progress = backlog.topics["orders"]
    assert {queue_id: queue.cold_end for queue_id, queue in progress.queues.items()} == {0: 2, 1: 1}
    assert progress.queues[0].first_waiting_ms == 8
    assert 0 < backlog.committed_offset() < len(store.log)


def test_a_record_that_lasts_is_not_stepped_over_for_older_ones_behind_it(tmp_path: Path) -> None:
    """As RocketMQ wrote them while its clock was set back."""
    store = LocalStore(tmp_path)
    for store_ms in (1_000, 1_001, *[400] * 50):
        store.put("topic", 0, store_ms=store_ms)
    plan = store.backlog(SealPolicy(), cut_ms=900).plan("topic", flush_offset=len(store.log))
    assert offsets(plan) == {0: (0, 52)}


@settings(max_examples=25)
@given(expired=st.integers(0, 40), lasting=st.integers(0, 40))
def test_all_expired_records_in_front_are_stepped_over(
    tmp_path_factory: pytest.TempPathFactory, expired: int, lasting: int
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("local"))
    for number in range(expired + lasting):
        store.put("topic", 0, store_ms=1 if number < expired else 2)
    if expired + lasting:
        plan = store.backlog(SealPolicy(), cut_ms=2).plan("topic", flush_offset=len(store.log))
        assert plan is not None
        assert offsets(plan) == ({0: (expired, expired + lasting)} if lasting else {})
        assert plan.skipped_to == ({0: expired} if expired else {})


def test_expired_records_are_stepped_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for store_ms in (1_000, 2_000, 3_000):
        store.put("topic", 0, store_ms=store_ms)
        store.put("topic", 1, store_ms=1_000)
    backlog = store.backlog(SealPolicy(), cut_ms=2_000)
    plan = backlog.plan("topic", flush_offset=len(store.log))
    assert plan is not None
    assert offsets(plan) == {0: (1, 3)}
    assert plan.skipped_to == {0: 1, 1: 3}
    backlog.committed(plan)
    backlog.account()
    assert backlog.committed_offset() == len(store.log)


def test_a_queue_starts_at_its_first_remaining_file(tmp_path: Path) -> None:
    """Records that an earlier tier process stepped over as expired are in no catalog; their files may be gone."""
    store = LocalStore(tmp_path)
    for number in range(20):
        store.put("topic", 0, store_ms=number)
    backlog = store.backlog(SealPolicy())
    (tmp_path / "consumequeue" / "topic" / "0" / f"{0:020d}").unlink()
    store.log_min_offset = len(store.log) // 20 * 9
    backlog = SealBacklog(
        queues=LocalQueues(RealDisk(), path=str(tmp_path / "consumequeue"), file_bytes=QUEUE_FILE_BYTES),
        log=LocalLog(RealDisk(), path=str(tmp_path / "commitlog"), file_bytes=LOG_FILE_BYTES),
        policy=SealPolicy(),
        log_min_offset=lambda: store.log_min_offset,
    )
    backlog.set_topic("topic", incarnation=1, cut_ms=0, tiered=True, cold_ends={})
    backlog.set_queue("topic", 0, min_offset=0, end_offset=20)
    backlog.set_reported_offset(len(store.log))
    backlog.account()
    assert backlog.committed_offset() == store.log_min_offset
    assert backlog.topics["topic"].first_waiting_ms == 9
    assert offsets(backlog.plan("topic", flush_offset=len(store.log))) == {0: (9, 20)}


def test_a_queue_that_stays_unreadable_is_an_error_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It holds back local deletion, and a full disk refuses messages: the operator has to know why."""
    store = LocalStore(tmp_path)
    store.put("topic", 0, store_ms=1)
    backlog = store.backlog(SealPolicy())
    (tmp_path / "consumequeue/topic/0" / f"{0:020d}").write_bytes(bytes(QUEUE_FILE_BYTES))
    backlog.set_queue("topic", 0, min_offset=0, end_offset=2)
    with caplog.at_level(logging.WARNING, logger="thermocline"):
        for _ in range(UNREADABLE_TOLD - 1):
            backlog.account()
        assert not caplog.records
        for _ in range(2 * UNREADABLE_TOLD):
            backlog.account()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert backlog.committed_offset() == 0


def test_an_unreadable_queue_holds_the_gate_until_its_deletion_is_reported(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("topic", 0, store_ms=1)
    backlog = store.backlog(SealPolicy())
    store.put("topic", 0, store_ms=1)
    for file in (tmp_path / "consumequeue" / "topic" / "0").iterdir():
        file.unlink()
    backlog.set_queue("topic", 0, min_offset=0, end_offset=2)
    backlog.set_reported_offset(len(store.log))
    backlog.account()
    assert backlog.committed_offset() == 0
    backlog.delete_topic("topic")
    backlog.account()
    assert backlog.committed_offset() == len(store.log)


def test_a_deleted_and_remade_topic_starts_clean(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("topic", 0, store_ms=1)
    backlog = store.backlog(SealPolicy())
    backlog.delete_topic("topic")
    assert backlog.committed_offset() == len(store.log)
    backlog.set_topic("topic", incarnation=2, cut_ms=0, tiered=True, cold_ends={})
    assert backlog.topics["topic"].queues == {}


@given(
    puts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9_000)), min_size=1, max_size=40),
    more=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9_000)), max_size=10),
)
def test_plans_cover_each_record_once_and_hold_the_gate(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[tuple[int, int]],
    more: list[tuple[int, int]],
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("store"))
    for queue_id, body_bytes in puts:
        store.put("topic", queue_id, store_ms=1, body_bytes=body_bytes)
    backlog = store.backlog(SealPolicy(segment_bytes=20_000))
    for queue_id, body_bytes in more:
        store.put("topic", queue_id, store_ms=2, body_bytes=body_bytes)
    store.report(backlog)
    covered: dict[int, int] = {}
    last_end = 0
    while True:
        gate = backlog.committed_offset()
        assert gate >= last_end
        plan = backlog.plan("topic", flush_offset=len(store.log))
        if plan is None:
            break
        assert plan.raw_bytes <= 20_000 or sum(len(run.units) for run in plan.runs) == 1
        for run in plan.runs:
            assert run.start_offset == covered.get(run.queue_id, 0)
            covered[run.queue_id] = run.end_offset
            assert int(run.units["physical_offset"][0]) >= gate
        last_end = gate
        backlog.committed(plan)
        backlog.account()
    assert covered == {queue_id: len(units) // UNIT.itemsize for (_, queue_id), units in store.units.items()}
    assert backlog.committed_offset() == len(store.log)


def test_a_plan_is_not_committed_twice(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("topic", 0, store_ms=1)
    backlog = store.backlog(SealPolicy())
    plan = backlog.plan("topic", flush_offset=len(store.log))
    assert plan is not None
    backlog.check_waits(plan)
    backlog.committed(plan)
    with pytest.raises(AssertionError, match="twice"):
        backlog.check_waits(plan)
