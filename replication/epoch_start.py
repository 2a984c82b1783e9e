"""Epoch start: a running broker becomes the master of an epoch, in as many attempts as that takes.

It owns the epochs of the store, from one role to the next.

An attempt may fail after the epoch has begun: the disk is full, the ledger is away. The next one goes on with the
epoch, as long as the broker has not served in it: no client has seen what the log has since its start, and nothing was
requested from the controller. After that, or in another life of the process, the broker needs another epoch
(epoch_file.py).
"""

from __future__ import annotations

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.epoch_file import EpochFile
from thermocline.replication.epochs import EpochEntry
from thermocline.store.files import Disk


class EpochStart:
    """One store's, in one life of its process. Owner: the loop thread."""

    def __init__(self, disk: Disk, root_path: str) -> None:
        """Nothing is read yet."""
        self._disk = disk
        self._root_path = root_path
        self._file: EpochFile | None = None
        self._begun: EpochEntry | None = None
        self.served_epoch = 0
        """The newest epoch that this broker has served in as its master, in this life of its process."""

    @property
    def file(self) -> EpochFile:
        """The epochs of the store's log; read once, when the store is locked.

        Raises:
            CorruptDataError: They cannot be read.
        """
        if self._file is None:
            self._file = EpochFile(self._disk, self._root_path)
        return self._file

    def begin(self, epoch: int, *, min_offset: PhysicalOffset, end_offset: PhysicalOffset) -> None:
        """Begin an epoch at the log's end, or go on with the one that an attempt before has begun; durable on return.
        The log has nothing behind `end_offset` that this epoch does not, and nothing before `min_offset`.

        Raises:
            StaleEpochError: The log has this epoch, from another life or as another broker's, or a later one.
            CorruptDataError: The epochs cannot be read.
            OSError, DiskFullError: It is not durable.
        """
        file = self.file
        last = file.epochs.last
        if last is not None and last == self._begun and last.epoch == epoch and last.start_offset <= end_offset:
            return
        self._begun = None
        file.begin_as_master(epoch, end_offset)
        file.settle(min_offset=min_offset, end_offset=end_offset)
        self._begun = file.epochs.last

    def served(self) -> None:
        """The broker serves in its epoch from now on."""
        self.served_epoch = self.file.epochs.last.epoch if self.file.epochs.last is not None else 0
        self._begun = None

    def settle(self, *, min_offset: PhysicalOffset, end_offset: PhysicalOffset) -> None:
        """A slave's log begins and ends here: drop the epochs of what it does not have. Raises as `begin`."""
        self.file.settle(min_offset=min_offset, end_offset=end_offset)
