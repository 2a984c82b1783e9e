"""State snapshots: what they reserve, how they are written, found and deleted, and who is fenced.

Covers `tiered/state/newest_state.py`, `tiered/state/state_log.py`.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator
from random import Random

import msgspec
import pytest

from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from tests.tiered.state_data import snapshot
from thermocline.remoting.errors import FencedError, ObjectStoreUnavailableError
from thermocline.tiered.ledger.fencing import FencingMode, new_arbiter
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity
from thermocline.tiered.objects.checked_json import seal_json
from thermocline.tiered.objects.errors import StateCorruptError, StateTooNewError
from thermocline.tiered.objects.object_store import Data, ObjectInfo
from thermocline.tiered.state.newest_state import UNLISTED_MAX, find_last, find_newest, list_names, read_newest
from thermocline.tiered.state.snapshot import StateName, StateSnapshot, decode_state, encode_state
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import Fault, FaultInjectingObjectStore
from thermocline.tiered.wrappers.fault_injection import crash_at


def snapshot_of(store: MemoryObjectStore, name: StateName) -> StateSnapshot:
    """The one that is there under this name."""
    return decode_state(store.objects[KEYS.state(epoch=name.epoch, sequence=name.sequence)], name=name)


def test_the_stored_form() -> None:
    given = snapshot(StateName(2, 7))
    assert encode_state(given) == (
        b'{"format":1,"epoch":2,"sequence":7,"store_uuid":"store-1","cluster":"DefaultCluster",'
        b'"broker_name":"broker-a","captured_ms":1,"log_offset":0,"log_ceiling":1000,"record_bytes_min":91,'
        b'"topics":[{"topic":"orders","incarnation":1,"ends":[[0,10]]}],'
        b'"documents":{"topics.json":{"topicConfigTable":{}}},"crc32":"CRC"}'
    ).replace(b"CRC", b"%08x" % zlib.crc32(encode_state(given)[:-20]))
    assert encode_state(msgspec.structs.replace(given, previous=StateName(2, 6))).count(b'"previous":[2,6]') == 1
    assert decode_state(encode_state(given), name=given.name) == given


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        encode_state(snapshot(StateName(2, 8))),
        encode_state(msgspec.structs.replace(snapshot(StateName(2, 7)), format=2)),
        seal_json(msgspec.json.encode(snapshot(StateName(2, 7), log_offset=1_001))),
    ],
)
def test_objects_that_are_no_snapshot_of_their_name(data: bytes) -> None:
    with pytest.raises(StateCorruptError):
        decode_state(data, name=StateName(2, 7))


def test_no_queue_gets_further_than_records_fit_below_the_ceiling() -> None:
    given = snapshot(StateName(1, 1), log_offset=100, log_ceiling=100 + 91 * 5 + 1)
    assert given.unseen_messages_max == 6
    assert given.queue_ceiling(10) == 16


def test_who_made_it_and_what_it_reserves_does_not_make_it_another() -> None:
    given = snapshot(StateName(1, 1))
    assert given.says_the_same(msgspec.structs.replace(given, epoch=9, sequence=9, captured_ms=9, log_ceiling=9_000))
    assert not given.says_the_same(msgspec.structs.replace(given, log_offset=1))
    assert not given.says_the_same(msgspec.structs.replace(given, documents={}))


async def test_the_newest_two_stay() -> None:
    store = MemoryObjectStore()
    log = StateLog(await open_writer(store))
    assert (await log.newest()).snapshot is None
    for number in range(1, 6):
        await log.write(snapshot(log.next_name()))
        assert (await list_names(store, KEYS))[-1] == StateName(1, number)
    assert await list_names(store, KEYS) == [StateName(1, 4), StateName(1, 5)]
    newest = await read_newest(store, KEYS)
    assert newest is not None
    assert newest.name == StateName(1, 5)


async def test_the_next_writer_goes_on_and_cleans_up() -> None:
    store = MemoryObjectStore()
    first = StateLog(await open_writer(store))
    for _ in range(2):
        await first.write(snapshot(first.next_name()))
    second = StateLog(await open_writer(store, seed=2))
    newest = (await second.newest()).snapshot
    assert newest is not None
    assert (newest.name, newest.previous) == (StateName(1, 2), StateName(1, 1))
    await second.write(snapshot(second.next_name()))
    assert await list_names(store, KEYS) == [StateName(1, 2), StateName(2, 1)]


async def test_a_snapshot_reserves_nothing_once_another_writer_has_claimed_the_ledger() -> None:
    store = MemoryObjectStore()
    log = StateLog(await open_writer(store))
    await log.write(snapshot(log.next_name()))
    successor = await open_writer(
        store, seed=2, identity=LedgerIdentity(store_uuid="b", cluster="c", broker_name="n"), adopt=True
    )
    with pytest.raises(FencedError):
        await log.write(snapshot(log.next_name()))
    # Its own successor's snapshots are the newer ones, whatever it has left.
    heir = StateLog(successor)
    await heir.write(snapshot(heir.next_name()))
    newest = await read_newest(store, KEYS)
    assert newest is not None
    assert newest.name == StateName(2, 1)


async def test_a_writer_that_slept_until_its_successor_was_collected_is_fenced() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    log = StateLog(writer)
    await commit_segment(writer)
    await store.delete(KEYS.ledger_entry(writer.version))  # collected, so there were later ones
    with pytest.raises(FencedError):
        await log.write(snapshot(log.next_name()))


async def test_commits_of_its_own_meanwhile_do_not_fence_a_writer() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    log = StateLog(writer)
    await log.write(snapshot(log.next_name()))
    await commit_segment(writer)
    await log.write(snapshot(log.next_name()))
    assert len(await list_names(store, KEYS)) == 2


@pytest.mark.parametrize("bit", [0, 77, 900, -30, -1])
async def test_the_one_before_is_taken_when_the_newest_is_damaged(bit: int) -> None:
    store = MemoryObjectStore()
    log = StateLog(await open_writer(store))
    for _ in range(3):
        await log.write(snapshot(log.next_name()))
    key = KEYS.state(epoch=1, sequence=3)
    data = bytearray(store.objects[key])
    data[bit // 8] ^= 1 << bit % 8
    await store.put(key, bytes(data))
    found = await find_newest(store, KEYS)
    assert found.snapshot is not None
    assert (found.snapshot.name, found.skipped) == (StateName(1, 2), (key,))
    assert await read_newest(store, KEYS) == found.snapshot
    heir = StateLog(await open_writer(store, seed=2))
    assert (await heir.newest()) == found
    assert heir.reserved_ceiling == 0, "a damaged one reserves nothing"


async def test_unreadable_snapshots_replace_no_readable_one() -> None:
    """A foreign object has been put under a name of this epoch, before its writer has listed the names."""
    store = MemoryObjectStore()
    first = StateLog(await open_writer(store))
    for _ in range(2):
        await first.write(snapshot(first.next_name()))
    await store.put(KEYS.state(epoch=2, sequence=99), b"unknown content")
    second = StateLog(await open_writer(store, seed=2))
    assert (await second.newest()).snapshot == snapshot_of(store, StateName(1, 2))
    await second.write(snapshot(second.next_name()))
    # Were the one that was just written damaged, the good one of the first writer is still there.
    assert await list_names(store, KEYS) == [StateName(1, 2), StateName(2, 99), StateName(2, 100)]
    await second.write(snapshot(second.next_name()))
    assert await list_names(store, KEYS) == [StateName(2, 100), StateName(2, 101)]


async def test_a_writer_that_could_read_neither_deletes_none_of_its_own() -> None:
    """It goes on without a look; the names of its epoch that it has not come to are none of its own."""
    store = MemoryObjectStore()
    first = StateLog(await open_writer(store))
    for _ in range(2):
        await first.write(snapshot(first.next_name()))
    foreign = [StateName(2, 98), StateName(2, 99)]
    for name in foreign:
        await store.put(KEYS.state(epoch=name.epoch, sequence=name.sequence), b"unknown content")
    second = StateLog(await open_writer(store, seed=2))
    with pytest.raises(StateCorruptError):
        await second.newest()
    good = [StateName(1, 1), StateName(1, 2)]
    await second.write(snapshot(second.next_name()))
    assert await list_names(store, KEYS) == [*good, StateName(2, 1), *foreign]
    assert second.kept == (StateName(1, 2), StateName(2, 1))
    await second.write(snapshot(second.next_name()))
    assert await list_names(store, KEYS) == [StateName(2, 1), StateName(2, 2), *foreign]


async def test_a_third_one_may_have_reserved_too_little() -> None:
    store = MemoryObjectStore()
    log = StateLog(await open_writer(store))
    for _ in range(2):
        await log.write(snapshot(log.next_name()))
    for sequence in (8, 9):
        await store.put(KEYS.state(epoch=1, sequence=sequence), b"unknown content")
    with pytest.raises(StateCorruptError, match="no state snapshot can be read"):
        await find_newest(store, KEYS)


async def test_one_without_a_checksum_is_not_enough_but_is_read() -> None:
    store = MemoryObjectStore()
    for sequence in (1, 2):
        await store.put(KEYS.state(epoch=1, sequence=sequence), msgspec.json.encode(snapshot(StateName(1, sequence))))
    newest = await read_newest(store, KEYS)
    assert newest is not None
    assert newest.name == StateName(1, 2)
    await store.put(KEYS.state(epoch=1, sequence=2), b"{")
    with pytest.raises(StateCorruptError):
        await find_newest(store, KEYS)


async def test_one_of_a_later_version_is_not_passed_over() -> None:
    store = MemoryObjectStore()
    await store.put(KEYS.state(epoch=1, sequence=1), encode_state(snapshot(StateName(1, 1))))
    later = msgspec.structs.replace(snapshot(StateName(1, 2)), format=2)
    await store.put(KEYS.state(epoch=1, sequence=2), encode_state(later))
    with pytest.raises(StateTooNewError):
        await find_newest(store, KEYS)


async def test_a_snapshot_put_without_an_answer_counts_in_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    log = StateLog(await open_writer(store))
    for _ in range(2):
        await log.write(snapshot(log.next_name()))
    create = store.create_if_absent

    async def unanswered(key: str, data: Data) -> None:
        await create(key, data)
        raise ObjectStoreUnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store, "create_if_absent", unanswered)
        with pytest.raises(ObjectStoreUnavailableError):
            await log.write(snapshot(log.next_name(), log_ceiling=9_000))
    assert log.reserved_ceiling == 1_000
    assert await list_names(store, KEYS) == [StateName(1, 1), StateName(1, 2), StateName(1, 3)]
    assert log.may_have_made(StateName(1, 3))
    await log.write(snapshot(log.next_name(), log_ceiling=9_500))
    assert await list_names(store, KEYS) == [StateName(1, 3), StateName(1, 4)]
    assert log.reserved_ceiling == 9_000
    newest = await read_newest(store, KEYS)
    assert newest is not None
    assert newest.previous == StateName(1, 3)


class Forgetful(MemoryObjectStore):
    """Its list is late: it shows a snapshot that has gone."""

    late = 1

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        if self.late and prefix == KEYS.state_prefix:
            self.late -= 1
            yield ObjectInfo(key=KEYS.state(epoch=9, sequence=9), size_bytes=1, etag="", modified_ms=0)
        async for info in super().list(prefix, start_after=start_after):
            yield info


async def test_a_snapshot_that_goes_while_it_is_looked_for() -> None:
    store = Forgetful()
    log = StateLog(await open_writer(store))
    store.late = 0
    await log.write(snapshot(log.next_name()))
    store.late = 1
    newest = await read_newest(store, KEYS)
    assert newest is not None
    assert newest.name == StateName(1, 1)
    store.late = 1 << 30
    await store.delete(KEYS.state(epoch=1, sequence=1))
    with pytest.raises(ObjectStoreUnavailableError):
        await read_newest(store, KEYS)


class Lagging(MemoryObjectStore):
    """Its lists show no state snapshot but `shown`, there or not."""

    shown: tuple[StateName, ...] = ()

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        if prefix != KEYS.state_prefix:
            async for info in super().list(prefix, start_after=start_after):
                yield info
            return
        for name in self.shown:
            key = KEYS.state(epoch=name.epoch, sequence=name.sequence)
            yield ObjectInfo(key=key, size_bytes=1, etag="", modified_ms=0)


async def fill_epochs(store: MemoryObjectStore) -> int:
    """Three snapshots of the first epoch, none of the second, UNLISTED_MAX of the third: the newest, and it is."""
    counts = (3, 0, UNLISTED_MAX)
    for seed, count in enumerate(counts, start=1):
        log = StateLog(await open_writer(store, seed=seed))
        for _ in range(count):
            await log.write(snapshot(log.next_name()))
    return len(counts)


@pytest.mark.parametrize(
    "shown",
    [
        (),
        (StateName(1, 1),),
        (StateName(1, 2), StateName(1, 3)),
        (StateName(1, 3), StateName(3, 1)),
        (StateName(3, UNLISTED_MAX - 1), StateName(3, UNLISTED_MAX)),
    ],
)
async def test_snapshots_missing_in_a_listing_are_found_by_name(shown: tuple[StateName, ...]) -> None:
    store = Lagging()
    epoch = await fill_epochs(store)
    store.shown = shown
    found = await find_last(store, KEYS, epoch=epoch)
    assert found.snapshot is not None
    assert found.snapshot.name == StateName(3, UNLISTED_MAX)
    assert found.names == (StateName(3, UNLISTED_MAX - 1), StateName(3, UNLISTED_MAX))
    # And the next writer continues behind it.
    heir = StateLog(await open_writer(store, seed=9))
    assert await heir.newest() == found
    assert heir.reserved_ceiling == found.snapshot.log_ceiling
    assert heir.next_name() == StateName(epoch + 1, 1)


async def test_the_one_before_is_taken_when_the_newest_is_damaged_and_neither_is_listed() -> None:
    store = Lagging()
    epoch = await fill_epochs(store)
    key = KEYS.state(epoch=3, sequence=UNLISTED_MAX)
    await store.put(key, b"unknown content")
    found = await find_last(store, KEYS, epoch=epoch)
    assert found.snapshot is not None
    assert (found.snapshot.name, found.skipped) == (StateName(3, UNLISTED_MAX - 1), (key,))


async def test_without_snapshots_there_is_no_last_one() -> None:
    assert (await find_last(Lagging(), KEYS, epoch=3)).snapshot is None


@pytest.mark.parametrize("fault", [Fault.UNREACHED, Fault.LOST_ANSWER, Fault.LATE])
async def test_names_have_no_gaps_whatever_becomes_of_an_attempt(fault: Fault) -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    log = StateLog(writer)
    await log.write(snapshot(log.next_name()))
    writer.store = faulty = FaultInjectingObjectStore(store, crash_at(0, fault), late_by=100)
    for _ in range(2):
        with contextlib.suppress(ObjectStoreUnavailableError):
            await log.write(snapshot(log.next_name(), log_ceiling=2_000))
    await log.write(snapshot(log.next_name(), log_ceiling=3_000))
    await faulty.arrive()
    last = (await find_last(store, KEYS, epoch=1)).snapshot
    assert last is not None
    assert last.log_ceiling == 3_000
    sequences = [name.sequence for name in await list_names(store, KEYS)]
    assert sequences == [last.sequence - 1, last.sequence]
    assert last.sequence <= 4


async def test_an_attempt_that_had_arrived_with_other_contents_stays() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    log = StateLog(writer)
    await log.write(snapshot(log.next_name()))
    writer.store = FaultInjectingObjectStore(store, crash_at(0, Fault.LOST_ANSWER))
    with pytest.raises(ObjectStoreUnavailableError):
        await log.write(snapshot(log.next_name(), log_ceiling=2_000))
    for log_ceiling in (3_000, 4_000):
        await log.write(snapshot(log.next_name(), log_ceiling=log_ceiling))
        # What had arrived goes when it is superseded, like any other.
        found = [
            decode_state(await store.get(KEYS.state(epoch=name.epoch, sequence=name.sequence)), name=name)
            for name in await list_names(store, KEYS)
        ]
        wanted = {3_000: [(2, 2_000), (3, 3_000)], 4_000: [(3, 3_000), (4, 4_000)]}
        assert [(each.sequence, each.log_ceiling) for each in found] == wanted[log_ceiling]


async def test_with_ballots_each_attempt_has_its_own_name() -> None:
    """A put that comes late must not replace what a later attempt has saved: there, a creation may be a put."""
    store = MemoryObjectStore()
    writer = await open_writer(store)
    writer.arbiter = new_arbiter(FencingMode.BALLOTS, store, KEYS, random=Random(1))
    log = StateLog(writer)
    writer.store = FaultInjectingObjectStore(store, crash_at(0, Fault.UNREACHED))
    with pytest.raises(ObjectStoreUnavailableError):
        await log.write(snapshot(log.next_name()))
    await log.write(snapshot(log.next_name()))
    assert await list_names(store, KEYS) == [StateName(1, 2)]
