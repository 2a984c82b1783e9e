"""Log reservation: the log never grows past the ceiling in the last state snapshot in the bucket.

A broker recovered from the bucket goes on above the snapshot's ceiling, so no offset, in the log or in a queue, is
given out twice. The ceiling is as far ahead of the log as the disk is large (`coldReserveBytes`), and is raised when
half of that is used up. The log reaches it only when the bucket has been unreachable for very long; sends are then
refused until a new snapshot is saved.

File: thermocline/logCeiling.json  {"logCeiling": 1099511627776}: the ceiling of a saved snapshot, so that it holds
after a restart too. Without the file there is no ceiling, as in a store that never had a cold tier.

Ordinary sends pay nothing: the log's end is checked once a tick, and sends are refused in time (`guard_bytes`).
Belongs to the hot process's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk
from thermocline.store.log import CommitLog

logger = logging.getLogger(__name__)

FILE_NAME = "logCeiling"
REFUSAL = "the bucket has not answered for so long that no offset is left that a recovery would not give out again"
GUARD_BYTES_MAX = 1 << 30
GUARD_SHARE = 4


class _CeilingFile(msgspec.Struct, rename="camel"):
    log_ceiling: PhysicalOffset


def reserve_bytes(disk: Disk, store: StoreConfig, *, configured: int) -> int:
    """How far ahead of the log the ceiling is set: as configured, or as far as the disk lets the log grow."""
    return configured or disk.total_bytes(store.root_path) + 2 * store.log_file_bytes


def encode_ceiling(log_ceiling: PhysicalOffset) -> bytes:
    """The file's content."""
    return msgspec.json.encode(_CeilingFile(log_ceiling=log_ceiling))


class LogReservation:
    """Keeps the log below its ceiling. `check` once a tick."""

    def __init__(self, log: CommitLog, *, reserve_bytes: int, request_save: Callable[[], None]) -> None:
        """`request_save`: have `encode` written to the file."""
        self._log = log
        self._guard_bytes = min(GUARD_BYTES_MAX, reserve_bytes // GUARD_SHARE)
        self._request_save = request_save
        self.ceiling: PhysicalOffset | None = None

    def load(self, data: bytes | None) -> None:
        """Load the file's content.

        Raises:
            CorruptDataError: It is none.
        """
        if data is None:
            return
        try:
            self.ceiling = msgspec.json.decode(data, type=_CeilingFile).log_ceiling
        except msgspec.DecodeError as error:
            raise CorruptDataError("the log's ceiling cannot be read", file=FILE_NAME) from error

    def encode(self) -> bytes:
        """The file's content."""
        assert self.ceiling is not None
        return encode_ceiling(self.ceiling)

    def saved(self, ceiling: PhysicalOffset) -> None:
        """A snapshot that allows for this much is in the bucket."""
        if self.ceiling is None or ceiling > self.ceiling:
            self.ceiling = ceiling
            self._request_save()
        self.check()

    def check(self) -> None:
        """Refuse sends when the ceiling is near, take them again when it is not."""
        log, ceiling = self._log, self.ceiling
        if ceiling is None:
            return
        is_near = log.append_offset > ceiling - self._guard_bytes
        if is_near and log.refusal is None:
            log.pause(REFUSAL)
            logger.error(
                "sends are refused until the bucket answers append_offset=%d ceiling=%d", log.append_offset, ceiling
            )
        elif not is_near and log.refusal == REFUSAL:
            log.resume()
            logger.info("sends are taken again append_offset=%d ceiling=%d", log.append_offset, ceiling)
