"""Identity: the UUID of this store, by which a cold tier identifies the store of its history.

File: thermocline/identity.json  {"storeId": "…32 hex digits…", "formatVersion": 1}

Made once, durable before the first message. A store that Apache RocketMQ made gets one when it is first opened here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.store.files import Disk, SyncSite, replace_file

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
    if disk.exists(path):
        try:
            identity = msgspec.json.decode(disk.read(path), type=StoreIdentity)
        except msgspec.DecodeError as error:
            raise CorruptDataError("the store's identity is damaged", path=path) from error
        if identity.format_version != FORMAT_VERSION:
            raise CorruptDataError("the store is of another version", path=path, version=identity.format_version)
        return identity
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
