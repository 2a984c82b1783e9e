"""Epochs: which master wrote which part of a log, and up to where two logs are the same.

    epoch 1           epoch 2        epoch 5
    |-----------------|--------------|------------>      entries (1, 0), (2, 8192), (5, 20480)

A master begins an epoch where its log ends. An epoch ends where the next one begins, the last one at the log's end.

Rules
  - Epochs rise. Starts do not fall; two are equal when a master wrote nothing.
  - A master and epoch that two logs have in common, with the same start, wrote the same bytes in both, as far as the
    shorter of the two goes. What is behind that in the log of a slave was never the master's: it is cut off.
  - RocketMQ's broker keeps the older of two entries with equal starts, and then takes what two masters wrote for the
    same. Both are kept here.
  - Bound: ENTRIES_MAX; the oldest are dropped. RocketMQ's master has room for no more in its handshake.
Source: store/ha/autoswitch/EpochFileCache.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from thermocline.remoting.offsets import PhysicalOffset

ENTRIES_MAX = 1_000


class EpochEntry(NamedTuple):
    """One master's part of a log."""

    epoch: int
    start_offset: PhysicalOffset


class Alignment(NamedTuple):
    """Up to where two logs are the same."""

    end_offset: PhysicalOffset
    epoch: int
    """The newest epoch in common; `end_offset` is in it, or is its end."""


class Epochs:
    """The entries of one log, oldest first."""

    def __init__(self, entries: Sequence[EpochEntry] = ()) -> None:
        """ValueError: The entries break a rule."""
        self._entries: list[EpochEntry] = []
        for entry in entries:
            if not self.takes(entry):
                raise ValueError(f"epoch {entry.epoch} does not follow the one before it")
            self.append(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[EpochEntry]:
        return iter(self._entries)

    @property
    def last(self) -> EpochEntry | None:
        """The newest entry."""
        return self._entries[-1] if self._entries else None

    def takes(self, entry: EpochEntry) -> bool:
        """Whether an entry may follow the last one."""
        if entry.epoch < 0 or entry.start_offset < 0:
            return False
        last = self.last
        return last is None or (last.epoch < entry.epoch and last.start_offset <= entry.start_offset)

    def append(self, entry: EpochEntry) -> None:
        """Add the newest entry."""
        assert self.takes(entry)
        self._entries.append(entry)
        del self._entries[:-ENTRIES_MAX]

    def at(self, offset: PhysicalOffset) -> EpochEntry | None:
        """The entry that a byte at this offset belongs to, or will belong to; None: it is older than the oldest."""
        return next((entry for entry in reversed(self._entries) if entry.start_offset <= offset), None)

    def end_of(self, epoch: int) -> PhysicalOffset | None:
        """Where an epoch ends; None: it is the last one."""
        return next((entry.start_offset for entry in self._entries if entry.epoch > epoch), None)

    def drop_from_epoch(self, epoch: int) -> None:
        """Drop the entries of this epoch and later ones."""
        self._entries = [entry for entry in self._entries if entry.epoch < epoch]

    def drop_behind(self, end_offset: PhysicalOffset) -> None:
        """Drop the entries that begin behind the log's end."""
        self._entries = [entry for entry in self._entries if entry.start_offset <= end_offset]

    def drop_before(self, min_offset: PhysicalOffset) -> None:
        """Drop the entries that begin and end before the log's oldest byte; never the last one.

        Those without records that begin there stay: another log may have records of them.
        """
        entries = self._entries
        while len(entries) > 1 and entries[0].start_offset < min_offset >= entries[1].start_offset:
            del entries[0]

    def align(self, end_offset: PhysicalOffset, others: Epochs, others_end_offset: PhysicalOffset) -> Alignment | None:
        """Up to where a log with these entries and this end is the same as another log; None: nowhere."""
        starts = dict(others)
        for entry in reversed(self._entries):
            if starts.get(entry.epoch) != entry.start_offset:
                continue
            own_end, others_end = self.end_of(entry.epoch), others.end_of(entry.epoch)
            return Alignment(
                min(
                    end_offset if own_end is None else own_end, others_end_offset if others_end is None else others_end
                ),
                entry.epoch,
            )
        return None
