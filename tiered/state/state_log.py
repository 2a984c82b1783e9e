"""StateLog: a broker's state snapshots in its bucket. One is written when something changed; the newest two stay.

A snapshot's reservation counts once nobody else has claimed the ledger: whoever recovers claims first and looks for
snapshots afterwards, and a writer puts its snapshot first and looks at the ledger afterwards. So either the snapshot is
found, or its writer is fenced and uses nothing of what it reserved.

    writer:     create state e-s      -> ledger entry after the newest: none, or our own -> reserved
    recovery:   claim epoch e+1       -> list state/, look behind what that shows, read the newest

Names are a row without gaps, so that whoever reads finds by name what a listing has not seen yet (`newest_state.py`): a
snapshot is created, never replaced, and one that got no answer has its name tried again. Had it arrived after all, that
one stays, and the next name is taken. Only where creation is not exact (with ballots, whose listings may not lag) each
attempt has a name of its own.

Old ones are deleted by whoever writes, and only names older than two of its own time that are there; so a writer that
was fenced meanwhile deletes nothing of its successor's. A crash leaves what the next writer's first list finds.
Belongs to the tier process's loop.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import FencedError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.errors import AlreadyExistsError
from thermocline.tiered.ledger_reader import find_entry
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.state.newest_state import list_names, read_last
from thermocline.tiered.state.snapshot import StateName, StateSnapshot, encode_state

logger = logging.getLogger(__name__)

KEPT_COUNT = 2


class StateLog:
    """The snapshots that one writer makes. `write` is called by one task at a time."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._names: list[StateName] | None = None
        """What is there, oldest first; None before the first look."""
        self._sequence = 0

    async def newest(self) -> StateSnapshot | None:
        """The newest snapshot of an earlier writer, or of this one; None when there is none.

        Raises:
            ObjectStoreUnavailableError: No answer.
            StateCorruptError: It cannot be read.
        """
        writer = self._writer
        found = await read_last(writer.store, writer.keys, epoch=writer.epoch)
        self._names = await list_names(writer.store, writer.keys)
        known = [*self._names, found.name] if found is not None else self._names
        self._sequence = max([self._sequence, *(name.sequence for name in known if name.epoch == writer.epoch)])
        return found

    def next_name(self) -> StateName:
        """The name of the snapshot to write."""
        return StateName(self._writer.epoch, self._sequence + 1)

    async def write(self, snapshot: StateSnapshot) -> None:
        """Save a snapshot of the next name, or of one behind it when an earlier attempt has that; what it reserves may
        be used on return.

        Raises:
            FencedError: A later writer has taken over; nothing is reserved.
            ObjectStoreUnavailableError: No answer; nothing is reserved.
        """
        writer, store, keys = self._writer, self._writer.store, self._writer.keys
        assert snapshot.name == self.next_name()
        name, data = await self._create(snapshot)
        await self._check_unclaimed()
        logger.info(
            "state saved epoch=%d sequence=%d bytes=%d log_offset=%d log_ceiling=%d",
            name.epoch,
            name.sequence,
            len(data),
            snapshot.log_offset,
            snapshot.log_ceiling,
        )
        if self._names is None:
            self._names = await list_names(store, keys)
        if name not in self._names:
            self._names.append(name)
        await self._delete_superseded()
        assert writer.epoch == name.epoch

    async def _create(self, snapshot: StateSnapshot) -> tuple[StateName, bytes]:
        """Its name in the end, and its bytes."""
        writer, keys = self._writer, self._writer.keys
        while True:
            name = self.next_name()
            data = encode_state(msgspec.structs.replace(snapshot, sequence=name.sequence))
            key = keys.state(epoch=name.epoch, sequence=name.sequence)
            if not writer.arbiter.creates_exactly:
                self._sequence += 1
            try:
                await writer.store.create_if_absent(key, data)
            except AlreadyExistsError:
                is_ours = await self._is_there(key, data)
            else:
                is_ours = True
            self._sequence = name.sequence
            if is_ours:
                return name, data
            if self._names is not None:
                self._names.append(name)  # it goes when it is superseded, like any other

    async def _is_there(self, key: str, data: bytes) -> bool:
        try:
            return await self._writer.store.get(key) == data
        except ObjectNotFoundError:
            return False  # whoever has deleted it is a later writer, or has seen newer ones

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
        """Costs money, not correctness, when it fails: the next one tries again."""
        assert self._names is not None
        own_time = sorted(name for name in self._names if name.epoch <= self._writer.epoch)
        for name in own_time[:-KEPT_COUNT]:
            try:
                await self._writer.store.delete(self._writer.keys.state(epoch=name.epoch, sequence=name.sequence))
            except ObjectStoreUnavailableError as error:
                logger.debug("old state not deleted epoch=%d sequence=%d: %s", name.epoch, name.sequence, error)
                return
            self._names.remove(name)
