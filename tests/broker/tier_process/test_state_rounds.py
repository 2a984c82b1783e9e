"""State rounds: saved when something changed, no request when nothing did, and the ceiling always ahead.

Covers `broker/tier_process/state_capture.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import small_config
from tests.tiered.ledger_data import KEYS, open_writer
from thermocline.broker.state.state_documents import document_paths
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.broker.tier_process.state_capture import QueueEnds, StateCapture
from thermocline.broker.tier_process.state_rounds import EPOCHS_BACK_MAX, StateRounds
from thermocline.remoting.errors import FencedError, ObjectStoreUnavailableError, UnavailableError
from thermocline.store.files.disk import replace_file
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.objects.errors import StateTooNewError
from thermocline.tiered.objects.object_store import Data, ObjectStore
from thermocline.tiered.state.newest_state import UNLISTED_MAX, list_names, read_newest
from thermocline.tiered.state.snapshot import (
    CONSUMER_OFFSETS,
    STATE_FORMAT,
    QueueEnd,
    StateName,
    StateSnapshot,
    decode_state,
    encode_state,
)
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore, StoreCounters
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

RESERVE = 1_000
CONFIG = small_config()
ENDS = QueueEnds(log_offset=10, topics={"orders": (0, (QueueEnd(0, 5),))})


@dataclass(slots=True)
class Broker:
    """What rounds look at, set by the test."""

    writer: LedgerWriter
    counters: StoreCounters
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    offsets: ConsumerOffsets = field(default_factory=lambda: ConsumerOffsets(clock=lambda: 1))
    ends: QueueEnds = ENDS
    append_offset: int = 10
    popped: list[tuple[str, str, int, int]] = field(default_factory=list)
    pop_meanwhile: Callable[[], None] | None = None
    """Called once when the popped messages have been collected, before their receiver has them."""
    is_away: bool = False
    saved_ceilings: list[int] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def rounds(self, writer: LedgerWriter | None = None) -> StateRounds:
        """Those of a tier process that has just begun."""
        self.disk.make_directory(CONFIG.config_path)
        return StateRounds(
            writer or self.writer,
            StateLog(writer or self.writer),
            StateCapture(self.disk, CONFIG, clock=Clock()),
            ends=lambda: self.ends,
            reported_offset=lambda: self.ends.log_offset,
            popped=self._popped,
            append_offset=lambda: self.append_offset,
            saved=self.saved_ceilings.append,
            reserve_bytes=RESERVE,
            interval_ms=1_000,
            clock=self.clock,
        )

    async def _popped(self) -> list[tuple[str, str, int, int]]:
        if self.is_away:
            raise UnavailableError("away")
        popped, pop_meanwhile = self.popped, self.pop_meanwhile
        self.pop_meanwhile = None
        if pop_meanwhile is not None:
            pop_meanwhile()
        return popped

    def commit(self, offset: int) -> None:
        """A group consumes, and the broker writes that down."""
        self.offsets.commit("orders", "g", 0, offset)
        path = document_paths(CONFIG)[CONSUMER_OFFSETS]
        self.disk.now_ms += 1
        replace_file(self.disk, path, self.offsets.encode(), keep_backup=True)

    @property
    def request_count(self) -> int:
        """Of the bucket, so far."""
        return sum(self.counters.requests.values())

    async def newest(self) -> StateSnapshot:
        """What is in the bucket."""
        found = await read_newest(self.writer.store, KEYS)
        assert found is not None
        return found


@pytest.fixture
async def broker() -> Broker:
    counters = StoreCounters()
    store: ObjectStore = MeteringObjectStore(MemoryObjectStore(), counters)
    return Broker(await open_writer(store), counters)


async def test_saved_when_something_changed_and_no_request_when_nothing_did(broker: Broker) -> None:
    rounds = broker.rounds()
    assert await rounds.save()
    snapshot = await broker.newest()
    assert (snapshot.log_offset, snapshot.log_ceiling) == (10, 10 + RESERVE)
    assert [(topic.topic, topic.ends) for topic in snapshot.topics] == [("orders", (QueueEnd(0, 5),))]
    before = broker.request_count
    for _ in range(5):
        assert not await rounds.save()
    assert broker.request_count == before
    assert broker.saved_ceilings == [10 + RESERVE] * 6
    broker.commit(3)
    assert await rounds.save()
    broker.commit(3)  # written anew, with nothing new in it
    assert not await rounds.save()
    broker.ends = replace(broker.ends, log_offset=12)
    assert await rounds.save()
    assert (await broker.newest()).documents[CONSUMER_OFFSETS]["offsetTable"] == {"orders@g": {"0": 3}}


async def test_saved_also_after_the_clock_was_set_back(broker: Broker) -> None:
    """Else nothing would be saved until it has caught up: for eight hours, if it was in another time zone."""
    rounds = broker.rounds()
    await rounds.save_due()
    broker.commit(3)
    await rounds.save_due()
    assert (await broker.newest()).sequence == 2, "two reserve the log"
    broker.clock.now_ms -= 8 * 3_600_000
    await rounds.save_due()
    assert (await broker.newest()).sequence == 3
    broker.commit(4)
    await rounds.save_due()
    assert (await broker.newest()).sequence == 3, "an interval apart"
    broker.clock.now_ms += 1_000
    await rounds.save_due()
    assert (await broker.newest()).sequence == 4


async def test_a_restart_alone_saves_nothing(broker: Broker) -> None:
    assert await broker.rounds().save()
    writer = await open_writer(broker.writer.store, seed=2)
    rounds = broker.rounds(writer)
    assert not await rounds.save()
    assert broker.saved_ceilings == [10 + RESERVE] * 2
    broker.commit(4)
    assert await rounds.save()
    assert await list_names(writer.store, KEYS) == [StateName(1, 2), StateName(2, 1)]


async def test_many_restarts_do_not_make_the_next_one_dear(broker: Broker) -> None:
    """At a start each writer since the last snapshot costs 16 requests: a broker without traffic that is restarted
    every few minutes would pay for all of them each time."""
    assert await broker.rounds().save()
    seed, most, before = 1, 0, broker.request_count
    for _ in range(3 * EPOCHS_BACK_MAX):
        seed += 1
        await broker.rounds(await open_writer(broker.writer.store, seed=seed)).save()
        most, before = max(most, broker.request_count - before), broker.request_count
    assert most < (EPOCHS_BACK_MAX + 2) * UNLISTED_MAX + 50
    assert (await broker.newest()).epoch > 2 * EPOCHS_BACK_MAX


@pytest.mark.parametrize("number", [0, 1])
async def test_each_of_the_two_kept_snapshots_reserves_the_promised_ceiling(broker: Broker, number: int) -> None:
    """Whichever is lost, the other one reserves up to the highest ceiling that the broker received."""
    rounds = broker.rounds()
    for growth in (0, RESERVE // 2 + 1, 3, RESERVE // 2 + 1, 3 * RESERVE):
        broker.append_offset += growth
        broker.ends = replace(broker.ends, log_offset=broker.append_offset)
        await rounds.save()
        names = await list_names(broker.writer.store, KEYS)
        assert len(names) == 2
        name = names[number]
        data = await broker.writer.store.get(KEYS.state(epoch=name.epoch, sequence=name.sequence))
        assert decode_state(data, name=name).log_ceiling == broker.saved_ceilings[-1] > broker.append_offset


async def test_a_ceiling_is_promised_only_when_the_second_snapshot_is_there_too(broker: Broker) -> None:
    class Failing(WrappingObjectStore):
        puts_left = 1

        async def create_if_absent(self, key: str, data: Data) -> None:
            self.puts_left -= 1
            if self.puts_left < 0:
                raise ObjectStoreUnavailableError("away")
            await super().create_if_absent(key, data)

    store = Failing(MemoryObjectStore())
    store.puts_left = 1 << 30
    writer = await open_writer(store)
    rounds = broker.rounds(writer)
    store.puts_left = 1
    with pytest.raises(ObjectStoreUnavailableError):
        await rounds.save()
    assert broker.saved_ceilings == []
    store.puts_left = 1
    assert await rounds.save()
    assert broker.saved_ceilings == [10 + RESERVE]
    assert await list_names(store, KEYS) == [StateName(1, 1), StateName(1, 2)]


@pytest.mark.parametrize("damaged", [(0,), (1,), (0, 1)])
async def test_a_restart_beside_damaged_snapshots_has_two_whole_ones_again(
    broker: Broker, damaged: tuple[int, ...]
) -> None:
    await broker.rounds().save()
    names = await list_names(broker.writer.store, KEYS)
    for number in damaged:
        name = names[number]
        await broker.writer.store.put(KEYS.state(epoch=name.epoch, sequence=name.sequence), b"{}")
    writer = await open_writer(broker.writer.store, seed=2)
    rounds = broker.rounds(writer)
    assert await rounds.save()
    assert not await rounds.save()
    assert broker.saved_ceilings == [10 + RESERVE] * 3, "never less than before"
    for name in await list_names(writer.store, KEYS):
        data = await writer.store.get(KEYS.state(epoch=name.epoch, sequence=name.sequence))
        assert decode_state(data, name=name).log_ceiling == 10 + RESERVE


async def test_a_restart_beside_a_snapshot_of_a_later_version_saves_nothing(broker: Broker) -> None:
    """That snapshot may hold state that this version would drop."""
    await broker.rounds().save()
    later = msgspec.structs.replace(await broker.newest(), format=STATE_FORMAT + 1)
    key = KEYS.state(epoch=later.epoch, sequence=later.sequence)
    await broker.writer.store.put(key, encode_state(later))
    writer = await open_writer(broker.writer.store, seed=2)
    with pytest.raises(StateTooNewError):
        await broker.rounds(writer).save()
    assert await writer.store.get(key) == encode_state(later)


async def test_the_ceiling_moves_on_when_half_is_used_up(broker: Broker) -> None:
    rounds = broker.rounds()
    await rounds.save()
    broker.append_offset += RESERVE // 2
    broker.ends = replace(broker.ends, log_offset=broker.append_offset)
    await rounds.save()
    assert broker.saved_ceilings[-1] == 10 + RESERVE, "a ceiling that is far enough stays"
    broker.append_offset += 1
    assert await rounds.save()
    assert broker.saved_ceilings[-1] == broker.append_offset + RESERVE


async def test_popped_messages_count_as_not_consumed(broker: Broker) -> None:
    rounds = broker.rounds()
    broker.commit(9)
    broker.popped = [("orders", "g", 0, 6)]
    await rounds.save()
    assert (await broker.newest()).documents[CONSUMER_OFFSETS]["offsetTable"] == {"orders@g": {"0": 6}}
    broker.popped = []
    assert await rounds.save()
    assert (await broker.newest()).documents[CONSUMER_OFFSETS]["offsetTable"] == {"orders@g": {"0": 9}}


async def test_messages_popped_while_the_state_is_captured_count_as_not_consumed(broker: Broker) -> None:
    """The file of offsets is written every few seconds, perhaps between the collection of what is in flight and its
    reading here. A recovery from such a snapshot would pass over messages that no consumer has acknowledged."""

    def pop() -> None:
        broker.popped = [("orders", "g", 0, 6)]
        broker.commit(9)

    rounds = broker.rounds()
    broker.commit(6)
    broker.pop_meanwhile = pop
    await rounds.save()
    assert (await broker.newest()).documents[CONSUMER_OFFSETS]["offsetTable"] == {"orders@g": {"0": 6}}


async def test_without_the_hot_process_nothing_is_saved(broker: Broker) -> None:
    rounds = broker.rounds()
    broker.is_away = True
    with pytest.raises(UnavailableError):
        await rounds.save()
    assert broker.saved_ceilings == []


async def test_nothing_is_promised_once_another_writer_has_taken_over(broker: Broker) -> None:
    rounds = broker.rounds()
    await rounds.save()
    await open_writer(broker.writer.store, seed=2)
    broker.commit(1)
    with pytest.raises(FencedError):
        await rounds.save()
    assert broker.saved_ceilings == [10 + RESERVE]
