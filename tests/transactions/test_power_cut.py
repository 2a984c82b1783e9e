"""Power cuts and kills at any step of the disk: what of a half message is left decides, and only once.

One trial is one seed: several runs of a store on a simulated disk, each ended by a cut or a kill at a random step, in
recovery too, while transactions are sent, decided and asked about. Progress is saved as adversely as can be: it is
durable the moment it may be. In the end
  - A transaction whose half message the disk has kept is visible once if its truth is to commit, and never else.
  - One whose half message is lost is not visible.
  - A half message that was flushed is not lost.

Covers `transactions/queue_records.py`, `transactions/settlement.py`, `transactions/transaction_recovery.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.transactions.transaction_parts import COMMIT, ROLL_BACK, TIMEOUT_MS, Kept, Named, World
from thermocline.remoting.errors import (
    CorruptDataError,
    IllegalOperationError,
    InvalidRequestError,
    OffsetOutOfRangeError,
)
from thermocline.remoting.records.message_record import decode_record
from thermocline.transactions.settlement import settle_commits
from thermocline.transactions.transaction_config import TransactionConfig
from thermocline.transactions.transaction_coordinator import Decision

SEED = 20_261_123
LIVES = 5
LOG_FILE_BYTES = 16_384
STEPS_MAX = 400


@dataclass(eq=False)
class Sent:
    """One transaction."""

    body: bytes
    truth: Decision
    named: Named
    end_offset: int
    is_lost: bool = False


class Trial:
    """One seed."""

    def __init__(self, seed: str, *, settles: bool = True) -> None:
        self.random = Random(seed)
        self.kept = Kept(SimulatedDisk())
        self.sent: dict[bytes, Sent] = {}
        self.flushed_offset = 0
        self.number = 0
        self._settles = settles
        self._clock = World(self.kept, log_file_bytes=LOG_FILE_BYTES).clock
        self._disk.revive()

    @property
    def _disk(self) -> SimulatedDisk:
        disk = self.kept.disk
        assert isinstance(disk, SimulatedDisk)
        return disk

    def run(self) -> None:
        """Run the store several times, then until no check is open."""
        for _ in range(LIVES):
            self._live()
        world = self._open()
        self._note_losses(world)
        for _ in range(3):
            self._clock.now_ms += TIMEOUT_MS + 1
            self._check(world, chance=1.0)
        assert world.coordinator.table.open_count == 0
        visible = Counter(world.visible())
        for sent in self.sent.values():
            expected = 1 if sent.truth is COMMIT and not sent.is_lost else 0
            assert visible[sent.body] == expected, sent
        assert visible.keys() <= self.sent.keys()

    def _open(self) -> World:
        world = World(
            self.kept,
            clock=self._clock,
            config=TransactionConfig(op_bytes_max=self.random.choice((8, 4_096)), check_max=1_000),
            log_file_bytes=LOG_FILE_BYTES,
            settle=settle_commits if self._settles else lambda _: None,
        )
        if self.kept.progress is not None:
            # What the broker does at a start: progress that was taken back is saved as such.
            half_offset, op_offset = self.kept.progress
            now = world.coordinator.progress
            self.kept.progress = (min(half_offset, now[0]), min(op_offset, now[1]))
        return world

    def _live(self) -> None:
        is_kill = self.random.random() < 0.5
        self._disk.cut_at_step = self._disk.step_count + self.random.randrange(1, STEPS_MAX)
        with suppress(PowerCut):
            world = self._open()
            self._note_losses(world)
            while True:
                self._work(world)
        if is_kill:
            self._disk.revive()
        else:
            self.kept.disk = self._disk.after_power_cut(self.random)
        self._disk.cut_at_step = None

    def _work(self, world: World) -> None:
        action = self.random.choice(("send", "send", "decide", "decide", "check", "flush", "promise", "save", "write"))
        if action == "send":
            self.number += 1
            body = b"%d" % self.number
            named = world.send(body)
            truth = self.random.choice((COMMIT, COMMIT, ROLL_BACK))
            self.sent[body] = Sent(body, truth, named, world.store.commit_log.append_offset)
        elif action == "decide" and self.sent:
            sent = self.random.choice(list(self.sent.values()))
            if not sent.is_lost:
                self._decide(world, sent.truth, sent.named, waits=self.random.random() < 0.3)
        elif action == "check":
            self._clock.now_ms += self.random.randrange(2 * TIMEOUT_MS)
            self._check(world, chance=self.random.random())
        elif action == "flush":
            self.flushed_offset = max(self.flushed_offset, world.store.commit_log.flush())
        elif action == "promise":
            world.store.sync_derived()
        elif action == "save":
            world.save_progress()
        elif action == "write":
            world.coordinator.write_ops()

    def _check(self, world: World, *, chance: float) -> None:
        for question in world.check():
            if self.random.random() < chance:
                sent = self.sent.get(decode_record(question.record).body)
                # One whose half message was never answered has not run.
                truth = ROLL_BACK if sent is None else sent.truth
                self._decide(world, truth, Named(question.half_offset, question.physical_offset), waits=False)

    def _decide(self, world: World, truth: Decision, named: Named, *, waits: bool) -> None:
        with suppress(IllegalOperationError):
            world.end(named, truth, waits=waits)

    def _note_losses(self, world: World) -> None:
        """Which half messages the cut has taken."""
        for sent in self.sent.values():
            if sent.is_lost:
                continue
            try:
                record = world.store.read_record(sent.named.physical_offset)
                is_there = (record.body, record.topic) == (sent.body, "RMQ_SYS_TRANS_HALF_TOPIC")
            except (OffsetOutOfRangeError, CorruptDataError, InvalidRequestError):
                is_there = False
            if not is_there:
                assert sent.end_offset > self.flushed_offset, f"{sent} was flushed"
                sent.is_lost = True


def test_the_remaining_log_decides_once(case_count: Callable[..., int]) -> None:
    for number in range(case_count(quick=60, soak=20_000)):
        try:
            Trial(f"{SEED}/{number}").run()
        except BaseException:
            print(f"seed {SEED}/{number}")  # noqa: T201 - to run it again
            raise


def test_without_settlement_a_commit_is_repeated() -> None:
    """The trials can fail: what this folder has for it is needed."""
    failures = 0
    for number in range(60):
        with suppress(AssertionError):
            Trial(f"{SEED}/{number}", settles=False).run()
            continue
        failures += 1
    assert failures
