"""Epoch file: the epochs of a store's log, as RocketMQ keeps them.

File: epochFileCheckpoint (with `.bak`), lines of text

    2                 entries
    773307083         CRC-32 of the lines below, without its highest bit; 0: not checked
    7-7000            epoch, physical offset where it begins
    8-8000

Rules
  - Durable before use: an epoch before its first record, in the log of a slave as well.
  - Entries are dropped after the part of the log that they tell of: entries that begin behind the log's end mean
    nothing, a log that goes on behind its last entry would be taken for that entry's.
  - A file that is damaged counts as its backup. That may lack the last epoch: then a slave gives up more of its log
    than it has to, never less.
Owner: the loop thread. `begin` and the others block for two syncs; they come once for each election.
Source: common/utils/CheckpointFile.java, store/ha/autoswitch/EpochFileCache.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from zlib import crc32

from thermocline.remoting.errors import CorruptDataError, MQError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.epochs import Alignment, EpochEntry, Epochs
from thermocline.store.files import Disk, read_with_backup, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "epochFileCheckpoint"
CHECKSUM_MASK = 0x7FFFFFFF
NOT_CHECKED = 0
UNTOLD_EPOCH = 0
"""Of a log that began before its first epoch; controllers begin with 1."""


class EpochSyncSite(StrEnum):
    """Where epochs are made durable; what is lost without it stands beside it (see store/files/sync_site.py)."""

    EPOCH_FILE = "epoch file"
    """An epoch: its records count as those of the master before."""
    EPOCH_DIRECTORY = "epoch directory"
    """The same, for the file's name."""


class StaleEpochError(MQError):
    """A master's epoch is older than one that this log has."""


class EpochFile:
    """One store's."""

    def __init__(self, disk: Disk, root_path: str) -> None:
        """Reads the file in the store's folder, if there is one.

        Raises:
            CorruptDataError: Neither the file nor its backup can be read.
        """
        self._disk = disk
        self._path = f"{root_path}/{FILE_NAME}"
        self.epochs = self._load()

    def begin(self, entry: EpochEntry) -> None:
        """An epoch begins; durable on return.

        Raises:
            StaleEpochError: It does not follow the last one.
            OSError, DiskFullError: It is not durable; nothing has changed.
        """
        if not self.epochs.takes(entry):
            last = self.epochs.last
            raise StaleEpochError(
                "the epoch does not follow the log's last one",
                epoch=entry.epoch,
                start_offset=entry.start_offset,
                last_epoch=-1 if last is None else last.epoch,
            )
        self._save(Epochs([*self.epochs, entry]))

    def begin_as_master(self, epoch: int, end_offset: PhysicalOffset) -> None:
        """This broker is the master of an epoch, from its log's end on; durable on return.

        An epoch that has begun here before, in another life of this process, cannot go on: a power cut may have taken
        back bytes that slaves have, so new ones would be taken for those; and a change of the SyncStateSet may be
        under way that nothing here tells of. The broker has to be silent until the controller has replaced it.

        Raises:
            StaleEpochError: The log has this epoch, or a later one.
            OSError, DiskFullError: It is not durable; nothing has changed.
        """
        assert epoch > UNTOLD_EPOCH
        last = self.epochs.last
        if last is not None and last.epoch >= epoch:
            raise StaleEpochError("the log has this epoch already", epoch=epoch, last_epoch=last.epoch)
        epochs = Epochs(list(self.epochs))
        epochs.drop_behind(end_offset)
        if not len(epochs) and end_offset:
            epochs.append(EpochEntry(UNTOLD_EPOCH, LOG_START))
        epochs.append(EpochEntry(epoch, end_offset))
        self._save(epochs)

    def cut(self, alignment: Alignment) -> None:
        """The log has been cut at an alignment: drop the epochs behind it. Durable on return; raises as `begin`."""
        epochs = Epochs(list(self.epochs))
        epochs.drop_from_epoch(alignment.epoch + 1)
        epochs.drop_behind(alignment.end_offset)
        self._save_if_changed(epochs)

    def follow(self, others: Epochs, end_offset: PhysicalOffset) -> None:
        """The log ends here and is the beginning of another one: what tells of that part of it tells of this log, too.
        Durable on return; raises as `begin`."""
        shared = [entry for entry in others if entry.start_offset <= end_offset]
        older = [entry for entry in self.epochs if end_offset and shared and entry.epoch < shared[0].epoch]
        self._save_if_changed(Epochs([*older, *shared]))

    def settle(self, *, min_offset: PhysicalOffset, end_offset: PhysicalOffset) -> None:
        """Drop what the log does not have: before its oldest file, or behind its end, which a power cut may have taken
        back. Durable on return; raises as `begin`."""
        epochs = Epochs(list(self.epochs))
        epochs.drop_behind(end_offset)
        epochs.drop_before(min_offset)
        self._save_if_changed(epochs)

    def _save_if_changed(self, epochs: Epochs) -> None:
        if list(epochs) != list(self.epochs):
            self._save(epochs)

    def _save(self, epochs: Epochs) -> None:
        replace_file(
            self._disk,
            self._path,
            encode_epochs(epochs),
            keep_backup=True,
            file_site=EpochSyncSite.EPOCH_FILE,
            directory_site=EpochSyncSite.EPOCH_DIRECTORY,
        )
        self.epochs = epochs

    def _load(self) -> Epochs:
        damaged: CorruptDataError | None = None
        for path, data in read_with_backup(self._disk, self._path):
            try:
                return decode_epochs(data)
            except ValueError as error:
                logger.error("epoch file damaged path=%s error=%s", path, error)
                damaged = CorruptDataError("the epoch file is damaged", path=path, reason=str(error))
        if damaged is not None:
            raise damaged
        return Epochs()


def encode_epochs(epochs: Epochs) -> bytes:
    """The file's content."""
    lines = "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in epochs).encode()
    return b"%d\n%d\n%s" % (len(epochs), crc32(lines) & CHECKSUM_MASK, lines)


def decode_epochs(data: bytes) -> Epochs:
    """Take the file's content apart; ValueError if it is none."""
    count_text, _, rest = data.partition(b"\n")
    checksum_text, _, lines = rest.partition(b"\n")
    count, checksum = int(count_text), int(checksum_text)
    if checksum not in (NOT_CHECKED, crc32(lines) & CHECKSUM_MASK):
        raise ValueError("the checksum does not match")
    entries = []
    for line in lines.splitlines():
        epoch, _, start = line.partition(b"-")
        entries.append(EpochEntry(int(epoch), PhysicalOffset(int(start))))
    if len(entries) != count:
        raise ValueError(f"{count} entries are announced, {len(entries)} are there")
    return Epochs(entries)
