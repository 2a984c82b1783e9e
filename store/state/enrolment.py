"""Enrolment: whose log a slave's log is the copy of, if that store has a cold tier.

File: thermocline/enrolment.json
    {"storeId": "…", "masterStoreId": "…", "hasLedger": true, "redoneTopics": [], "formatVersion": 1}

A broker that is started as a master on this store may take over a ledger that `master_store_id` has written last, and
no other one. The file is written when the master has accepted where this log ends, and is gone after the take-over.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from thermocline.store.files import Disk, replace_file
from thermocline.store.state.versioned_file import load_versioned

FORMAT_VERSION = 1


class EnrolmentSyncSite(StrEnum):
    """Where the enrolment is made durable; what is lost without it stands beside it (see sync_site.py)."""

    ENROLMENT_FILE = "enrolment file"
    """The right to take the master's ledger over."""
    ENROLMENT_DIRECTORY = "enrolment directory"
    """The same, for its name in the folder; at a removal nothing: the next start repeats the take-over."""


class Enrolment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """See the module's header. `store_id`: of the store that the file is in: a copy of the file counts nowhere else.
    `has_ledger`: the master has had one, so that there is one to take over. `redone_topics`: while the ledger is taken
    over, topics whose queues are made anew from the log."""

    store_id: str
    master_store_id: str
    has_ledger: bool = False
    redone_topics: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION


def load_enrolment(disk: Disk, path: str, *, store_id: str) -> Enrolment | None:
    """Read the enrolment of this store; None if it has none.

    Raises:
        CorruptDataError: The file is damaged, or of a version that is not known here.
    """
    enrolment = load_versioned(disk, path, Enrolment, version=FORMAT_VERSION, name="enrolment")
    return enrolment if enrolment is not None and enrolment.store_id == store_id else None


def save_enrolment(disk: Disk, path: str, enrolment: Enrolment) -> None:
    """Write the enrolment; durable on return."""
    replace_file(
        disk,
        path,
        msgspec.json.encode(enrolment),
        keep_backup=False,
        file_site=EnrolmentSyncSite.ENROLMENT_FILE,
        directory_site=EnrolmentSyncSite.ENROLMENT_DIRECTORY,
    )


def remove_enrolment(disk: Disk, path: str) -> None:
    """Remove it, durably."""
    disk.remove(path)
    disk.sync_directory(path.rpartition("/")[0], site=EnrolmentSyncSite.ENROLMENT_DIRECTORY)
