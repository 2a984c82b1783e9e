"""States that ledger entries carry: between two objects only, found by a recovery, and not needed for safety."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
import pytest

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import small_config
from tests.tiered.ledger_data import KEYS, make_entry, open_writer
from thermocline.broker.tier_process import state_rounds
from thermocline.broker.tier_process.state_capture import QueueEnds, StateCapture
from thermocline.broker.tier_process.state_rounds import StateRounds
from thermocline.remoting.errors import UnavailableError
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.objects.errors import StateTooNewError
from thermocline.tiered.state.carried_state import decode_carried, encode_carried
from thermocline.tiered.state.newest_state import find_last, list_names, read_newest
from thermocline.tiered.state.snapshot import STATE_FORMAT, QueueEnd, StateName, StateSnapshot
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.stores.memory import MemoryObjectStore

RESERVE = 1_000
INTERVAL_MS = 1_000
CONFIG = small_config()


@dataclass(slots=True)
class Broker:
    """What rounds look at, set by the test; entries are committed as a round of sealing does."""

    writer: LedgerWriter
    clock: Clock
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    ends: QueueEnds = field(default_factory=lambda: QueueEnds(log_offset=10, topics={"orders": (0, (QueueEnd(0, 5),))}))
    is_away: bool = False
    sealed: int = 0
    states: StateRounds = field(init=False)

    def __post_init__(self) -> None:
        self.disk.make_directory(CONFIG.config_path)
        self.states = self.rounds(self.writer)

    def rounds(self, writer: LedgerWriter) -> StateRounds:
        """Those of a tier process that has just begun."""
        return StateRounds(
            writer,
            StateLog(writer),
            StateCapture(self.disk, CONFIG, clock=self.clock),
            ends=lambda: self.ends,
            reported_offset=lambda: self.ends.log_offset,
            popped=self._popped,
            append_offset=lambda: self.ends.log_offset,
            saved=lambda ceiling: None,
            reserve_bytes=RESERVE,
            interval_ms=INTERVAL_MS,
            clock=self.clock,
        )

    async def _popped(self) -> list[tuple[str, str, int, int]]:
        if self.is_away:
            raise UnavailableError("away")
        return []

    def grow(self, size_bytes: int = 1) -> None:
        """Messages come in."""
        self.ends = replace(self.ends, log_offset=self.ends.log_offset + size_bytes)

    async def seal(self) -> bool:
        """A round's entry; whether it carries the state."""
        carried = await self.states.carry()
        entry = make_entry(self.writer.next_segment_id(), start=10 * self.sealed)
        self.sealed += 1
        state = carried.data if carried is not None else b""
        await self.writer.commit(LedgerChanges(segments_in=(entry,), state=state))
        if carried is not None:
            carried.committed()
        return carried is not None

    async def newest(self) -> StateSnapshot:
        """The newest state that a reader of the bucket finds."""
        found = await read_newest(self.writer.store, KEYS)
        assert found is not None
        return found

    async def newest_object(self) -> StateSnapshot:
        """Return the state snapshot that a reader of the bucket's objects finds."""
        found = (await find_last(self.writer.store, KEYS, epoch=self.writer.epoch)).snapshot
        assert found is not None
        return found


@pytest.fixture
async def broker() -> Broker:
    clock = Clock()
    return Broker(await open_writer(MemoryObjectStore(), clock=clock, checkpoint_interval=4), clock)


async def carried(broker: Broker) -> None:
    """An object, then an entry that carries what is newer."""
    await broker.states.save_due()
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS // 2
    assert await broker.seal()


async def test_entries_carry_the_state_only_between_two_objects(broker: Broker) -> None:
    assert not await broker.seal(), "nothing is reserved yet"
    await broker.states.save_due()
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS // 2 - 1
    assert not await broker.seal(), "saved a short time ago"
    broker.clock.now_ms += 1
    assert await broker.seal()
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS - 1
    assert not await broker.seal(), "an object is to follow"
    await broker.states.save_due()
    assert await list_names(broker.writer.store, KEYS) == [StateName(1, 1), StateName(1, 2)]
    broker.clock.now_ms += 1
    await broker.states.save_due()
    assert await list_names(broker.writer.store, KEYS) == [StateName(1, 2), StateName(1, 3)]
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS // 2
    assert await broker.seal()


async def test_the_newest_of_both_forms_is_found(broker: Broker) -> None:
    await carried(broker)
    newest, older = await broker.newest(), await broker.newest_object()
    assert (newest.log_offset, newest.captured_ms) == (11, broker.clock.now_ms)
    assert older.log_offset == 10
    assert (newest.name, newest.log_ceiling) == (older.name, older.log_ceiling)
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS
    await broker.states.save_due()
    assert await broker.newest() == await broker.newest_object()
    assert (await broker.newest()).log_offset == 12


async def test_behind_a_carried_state_an_object_is_written_though_nothing_has_changed(broker: Broker) -> None:
    """The entry may be collected."""
    await carried(broker)
    broker.clock.now_ms += INTERVAL_MS
    await broker.states.save_due()
    newest = await broker.newest_object()
    assert (newest.name, newest.log_offset) == (StateName(1, 3), 11)
    broker.clock.now_ms += INTERVAL_MS
    await broker.states.save_due()
    assert (await broker.newest_object()).name == StateName(1, 3)


async def test_a_restart_behind_a_carried_state_writes_an_object(broker: Broker) -> None:
    await carried(broker)
    writer = await open_writer(broker.writer.store, clock=broker.clock, seed=2)
    assert (await StateLog(writer).newest()).is_carried
    await broker.rounds(writer).save_due()
    newest = await broker.newest()
    assert (newest.name, newest.log_offset) == (StateName(2, 1), 11)


async def test_a_claim_of_the_ledger_continues_from_its_carried_state(broker: Broker) -> None:
    await carried(broker)
    while broker.writer.checkpoint is None or broker.writer.checkpoint.version < broker.writer.catalog.state_version:
        await broker.seal()  # the next checkpoint names the state
    writer = await open_writer(broker.writer.store, clock=broker.clock, seed=2)
    assert await open_catalog(writer.store, KEYS) == writer.catalog
    found = await StateLog(writer).newest()
    assert found.snapshot is not None
    assert found.snapshot.log_offset == 11


@pytest.mark.parametrize("is_gone", [True, False])
async def test_without_the_entry_the_object_before_it_is_taken(broker: Broker, is_gone: bool) -> None:
    await carried(broker)
    store, key = broker.writer.store, KEYS.ledger_entry(broker.writer.catalog.state_version)
    await broker.seal()
    await broker.writer.write_checkpoint()  # then the ledger opens without the entry
    if is_gone:
        await store.delete(key)
    else:
        entry = msgspec.json.decode(await store.get(key))
        await store.put(key, msgspec.json.encode({**entry, "state": "AAAA"}))
    writer = await open_writer(store, clock=broker.clock, seed=2)
    found = await StateLog(writer).newest()
    assert found.snapshot == await broker.newest_object()
    assert not found.is_carried


async def test_one_of_a_later_format_is_not_passed_over(broker: Broker) -> None:
    await broker.states.save_due()
    later = msgspec.structs.replace(await broker.newest(), format=STATE_FORMAT + 1)
    entry = make_entry(broker.writer.next_segment_id())
    await broker.writer.commit(LedgerChanges(segments_in=(entry,), state=encode_carried(later)))
    with pytest.raises(StateTooNewError):
        await broker.newest()


async def test_state_too_large_for_an_entry_waits_for_an_object(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.states.save_due()
    monkeypatch.setattr(state_rounds, "CARRIED_BYTES_MAX", 10)
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS // 2
    assert not await broker.seal()


async def test_a_round_is_not_held_up_by_a_hot_process_that_is_away(broker: Broker) -> None:
    await broker.states.save_due()
    broker.grow()
    broker.is_away = True
    broker.clock.now_ms += INTERVAL_MS // 2
    assert not await broker.seal()


async def test_a_state_that_has_to_reserve_more_is_an_object(broker: Broker) -> None:
    await broker.states.save_due()
    broker.grow(RESERVE // 2 + 1)
    broker.clock.now_ms += INTERVAL_MS // 2
    assert not await broker.seal()
    await broker.states.save_due()
    assert (await broker.newest_object()).log_ceiling == broker.ends.log_offset + RESERVE


async def test_carried_state_older_than_an_object_is_ignored(broker: Broker) -> None:
    """An object is put while the entry with an older state is on its way: it is the newer one."""
    await broker.states.save_due()
    broker.grow()
    broker.clock.now_ms += INTERVAL_MS // 2
    state = await broker.states.carry()
    assert state is not None
    assert decode_carried(state.data).log_offset == 11
    broker.grow()
    assert await broker.states.save()
    entry = make_entry(broker.writer.next_segment_id())
    await broker.writer.commit(LedgerChanges(segments_in=(entry,), state=state.data))
    state.committed()
    assert (await broker.newest()).log_offset == 12
    assert not await broker.states.save(), "the newest is an object, and says the same"
