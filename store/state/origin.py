"""Origin: that a store was recovered from a bucket, and what must not be forgotten of that.

File: thermocline/origin.json
    {"storeId": "...", "root": "cluster/broker-a", "newQueueOffset": 4200000, "recoveredMs": 1795315149000,
     "formatVersion": 1}

The lost disk may have had queues without any trace: topics that were made after the last state snapshot. So that
none of their offsets is given out twice, every queue that is not known begins at `new_queue_offset`; all but those of
topics in which the broker keeps its own work. The file stays for as long as the store does. A store without one began
empty.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.topic_validation import is_internal_topic
from thermocline.store.files import Disk, replace_file
from thermocline.store.state.versioned_file import load_versioned

FORMAT_VERSION = 1


class OriginSyncSite(StrEnum):
    """Where the origin is made durable; what is lost without it stands beside it (see sync_site.py)."""

    ORIGIN_FILE = "origin file"
    """Where queues of a recovered store begin: offsets that were given out before."""
    ORIGIN_DIRECTORY = "origin directory"
    """The same, for its name in the folder."""


class StoreOrigin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a recovered store comes from: the ledger's root in its bucket."""

    store_id: str
    root: str
    new_queue_offset: QueueOffset
    recovered_ms: int
    format_version: int = FORMAT_VERSION

    def first_offset(self, topic: str) -> QueueOffset:
        """Where a queue begins that the recovery did not know."""
        return QUEUE_START if is_internal_topic(topic) else self.new_queue_offset


def load_origin(disk: Disk, path: str) -> StoreOrigin | None:
    """Read the origin; None of a store that began empty.

    Raises:
        CorruptDataError: The file is damaged, or of a version that is not known here.
    """
    return load_versioned(disk, path, StoreOrigin, version=FORMAT_VERSION, name="origin")


def save_origin(disk: Disk, path: str, origin: StoreOrigin) -> None:
    """Write the origin; durable on return."""
    replace_file(
        disk,
        path,
        msgspec.json.encode(origin),
        keep_backup=False,
        file_site=OriginSyncSite.ORIGIN_FILE,
        directory_site=OriginSyncSite.ORIGIN_DIRECTORY,
    )
