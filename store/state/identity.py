"""Identity: the UUID of this store, by which a cold tier identifies the store of its history.

File: thermocline/identity.json  {"storeId": "…32 hex digits…", "formatVersion": 1}

Made once, durable before the first message. A store that Apache RocketMQ made gets one when it is first opened here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.store.files import Disk, SyncSite, replace_file
from thermocline.store.state.versioned_file import load_versioned

FORMAT_VERSION = 1


class StoreIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The store's identity."""

    store_id: str
    format_version: int = FORMAT_VERSION


def load_or_make_identity(disk: Disk, path: str, *, make_id: Callable[[], str]) -> StoreIdentity:
    """Read the identity, or make one; durable on return.

    Raises:
        CorruptDataError: The file is damaged, or of a version that is not known here.
    """
    found = load_versioned(disk, path, StoreIdentity, version=FORMAT_VERSION, name="identity")
    if found is not None:
        return found
    identity = StoreIdentity(store_id=make_id())
    replace_file(
        disk,
        path,
        msgspec.json.encode(identity),
        keep_backup=False,
        file_site=SyncSite.IDENTITY_FILE,
        directory_site=SyncSite.IDENTITY_DIRECTORY,
    )
    return identity
