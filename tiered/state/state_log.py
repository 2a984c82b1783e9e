"""StateLog: a broker's state snapshots in its bucket. One is written after a change; the newest two are kept.

A snapshot's reservation counts once the ledger is seen unclaimed: a recovery first claims the ledger, then searches
snapshots; a writer first puts its snapshot, then reads the ledger. So either the recovery finds the snapshot, or its
writer is fenced and does not use the reservation.

    writer:     create state e-s      -> ledger entry after the newest: none, or our own -> reserved
    recovery:   claim epoch e+1       -> list state/, probe the names behind the listed ones, read the newest

Names have no gaps, so that readers find by name what a listing does not show yet (`newest_state.py`): a snapshot is
created, never replaced, and an attempt without an answer is repeated under the same name. If the first attempt arrived
after all, it stays, and the next name is used. Only where creation is not exact (with ballots, whose listings may not
lag) each attempt has a name of its own.

Only offsets that both kept snapshots reserve may be used (`reserved_ceiling`), so that either of them is enough when
the other is lost or damaged.

The writer deletes old snapshots, but only those older than two existing, readable ones of its own or an earlier epoch.
So a fenced writer deletes none of its successor's, and a foreign object under a name of this epoch does not cause the
deletion of a good one. The first listing of the next writer finds what a crash leaves; the next successful put deletes
what a put without an answer leaves.
Belongs to the tier process's loop.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import CorruptDataError, FencedError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.tiered.ledger import LedgerWriter, find_entry
from thermocline.tiered.objects import AlreadyExistsError
from thermocline.tiered.state.newest_state import NewestState, find_last, list_names, with_carried
from thermocline.tiered.state.snapshot import KEPT_COUNT, StateName, StateSnapshot, decode_state, encode_state

logger = logging.getLogger(__name__)


class StateLog:
    """The snapshots that one writer makes. `write` is called by one task at a time."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._names: list[StateName] | None = None
        """The existing snapshots, oldest first; None before the first listing."""
        self._unknown: list[StateName] = []
        """Snapshots put without an answer, under names of their own."""
        self._ceilings: dict[StateName, PhysicalOffset] = {}
        """The reservations of readable snapshots."""
        self._sequence = 0
        self._tried_sequence = 0
        """Of the last attempt, whether it had an answer or not."""

    async def newest(self) -> NewestState:
        """The newest snapshot of an earlier writer, or of this one, that can be read: an object, or what the ledger
        carries.

        Raises:
            ObjectStoreUnavailableError: No answer.
            StateCorruptError: Neither of the newest two can be read.
            StateTooNewError: A later version has written the newest one.
        """
        writer = self._writer
        found = await find_last(writer.store, writer.keys, epoch=writer.epoch)
        found.warn()
        self._names = sorted({*await list_names(writer.store, writer.keys), *found.names})
        self._sequence = max([self._sequence, *(name.sequence for name in self._names if name.epoch == writer.epoch)])
        if found.snapshot is not None:
            self._ceilings[found.snapshot.name] = found.snapshot.log_ceiling
        for name in self.kept:
            if name not in self._ceilings and self._key(name) not in found.skipped:
                await self._read_ceiling(name)
        return await with_carried(found, writer.store, writer.keys, writer.catalog)

    @property
    def kept(self) -> tuple[StateName, ...]:
        """The names that must exist by this writer's records; none before its first listing."""
        return tuple(self._own_time()[-KEPT_COUNT:])

    @property
    def reserved_ceiling(self) -> PhysicalOffset:
        """Up to where each of the kept snapshots reserves the log; 0 while there are fewer than are kept."""
        kept = self.kept
        nothing = LOG_START
        return min(self._ceilings.get(name, nothing) for name in kept) if len(kept) == KEPT_COUNT else nothing

    def may_have_made(self, name: StateName) -> bool:
        """Whether it is one that this writer, or an earlier one, can have put."""
        epoch, last = self._writer.epoch, max(self._sequence, self._tried_sequence)
        return name.epoch < epoch or (name.epoch == epoch and name.sequence <= last)

    def _own_time(self) -> list[StateName]:
        """The existing snapshots of this writer and of earlier ones, oldest first, readable or not."""
        return sorted(name for name in self._names or () if self.may_have_made(name))

    def next_name(self) -> StateName:
        """The name of the snapshot to write."""
        return StateName(self._writer.epoch, self._sequence + 1)

    @property
    def last_name(self) -> StateName:
        """The name that a snapshot bears which a ledger entry carries: of the object before it, less than that of the
        next."""
        return StateName(self._writer.epoch, self._sequence)

    async def write(self, snapshot: StateSnapshot) -> None:
        """Save a snapshot of the next name, or of one behind it when an earlier attempt has that; what it reserves may
        be used on return.

        Raises:
            FencedError: A later writer has taken over; nothing is reserved.
            ObjectStoreUnavailableError: No answer; nothing is reserved.
        """
        writer = self._writer
        assert snapshot.name == self.next_name()
        name, size_bytes = await self._create(snapshot)
        await self._check_unclaimed()
        logger.info(
            "state saved epoch=%d sequence=%d bytes=%d log_offset=%d log_ceiling=%d",
            name.epoch,
            name.sequence,
            size_bytes,
            snapshot.log_offset,
            snapshot.log_ceiling,
        )
        if self._names is None:
            self._names = await list_names(writer.store, writer.keys)
        self._add(name, snapshot.log_ceiling)
        if name in self._unknown:
            self._unknown.remove(name)
        await self._delete_superseded()
        assert writer.epoch == name.epoch

    async def _create(self, snapshot: StateSnapshot) -> tuple[StateName, int]:
        """Its name in the end, and its size in bytes."""
        writer = self._writer
        while True:
            name, kept = self.next_name(), self.kept
            named = msgspec.structs.replace(snapshot, sequence=name.sequence, previous=kept[-1] if kept else None)
            data = encode_state(named)
            self._tried_sequence = name.sequence
            if not writer.arbiter.creates_exactly:
                self._sequence = name.sequence
                self._unknown.append(name)
            try:
                await writer.store.create_if_absent(self._key(name), data)
            except AlreadyExistsError:
                is_ours = await self._is_there(name, data)
            else:
                is_ours = True
            self._sequence = name.sequence
            if is_ours:
                return name, len(data)

    async def _is_there(self, name: StateName, data: bytes) -> bool:
        """Whether it is this attempt that has the name. An earlier one stays as one of the row."""
        try:
            found = await self._writer.store.get(self._key(name))
        except ObjectNotFoundError:
            return False  # a later writer deleted it, or one that has seen newer snapshots
        if found == data:
            return True
        if self._names is not None:
            try:
                self._add(name, decode_state(found, name=name).log_ceiling)
            except CorruptDataError as error:
                self._add(name, None)
                logger.warning("state snapshot cannot be read key=%s: %s", self._key(name), error)
        return False

    def _add(self, name: StateName, ceiling: PhysicalOffset | None) -> None:
        """Note a snapshot that reserves the log up to `ceiling`; None: it is unreadable."""
        assert self._names is not None
        if name not in self._names:
            self._names.append(name)
        if ceiling is not None:
            self._ceilings[name] = ceiling

    async def _read_ceiling(self, name: StateName) -> None:
        try:
            snapshot = decode_state(await self._writer.store.get(self._key(name)), name=name)
        except (CorruptDataError, ObjectNotFoundError) as error:
            logger.warning("state snapshot cannot be read key=%s: %s", self._key(name), error)
            return
        self._ceilings[name] = snapshot.log_ceiling

    def _key(self, name: StateName) -> str:
        return self._writer.keys.state(epoch=name.epoch, sequence=name.sequence)

    async def _check_unclaimed(self) -> None:
        """Every entry behind the newest that we know of is our own. Entries are deleted in ascending order, so when the
        newest is gone there was a later one."""
        writer = self._writer
        version, is_newest = writer.version, False
        while not is_newest:
            behind = await find_entry(writer.store, writer.keys, version + 1)
            entry = behind or await find_entry(writer.store, writer.keys, version)
            if entry is None or entry.epoch != writer.epoch:
                raise FencedError(
                    "a later writer has taken over",
                    root=writer.keys.root,
                    epoch=writer.epoch,
                    later_epoch=entry.epoch if entry is not None else "collected",
                )
            version, is_newest = version + 1, behind is None

    async def _delete_superseded(self) -> None:
        """Delete superseded snapshots. A failure costs storage, not correctness: the next write tries again."""
        assert self._names is not None
        own_time = self._own_time()
        readable = [name for name in own_time if name in self._ceilings][-KEPT_COUNT:]
        superseded = [name for name in own_time if name < readable[0]] if len(readable) == KEPT_COUNT else []
        for name in (*self._unknown, *superseded):
            try:
                await self._writer.store.delete(self._key(name))
            except ObjectStoreUnavailableError as error:
                logger.debug("old state not deleted epoch=%d sequence=%d: %s", name.epoch, name.sequence, error)
                return
            self._ceilings.pop(name, None)
            for names in (self._unknown, self._names):
                if name in names:
                    names.remove(name)
