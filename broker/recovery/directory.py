"""Directory: decides whether a broker may be recovered into a store directory.

nothing in it, or a mark half made     a recovery may begin
the mark of a recovery under way       it begins anew
a store that never took a message      counts as nothing: a start without `--recover-from` leaves such a one
a store that came from that ledger     is started as it is
anything else                          is refused and not changed

Only what a store consists of is deleted: beside it may be anything, even the bucket that the recovery reads.
"""

from __future__ import annotations

from thermocline.broker.recovery.recovered_store import recovering_path
from thermocline.remoting.errors import InvalidRequestError
from thermocline.store.config import STORE_NAMES, StoreConfig
from thermocline.store.files import TEMPORARY_SUFFIX, Disk, make_durable_directory, replace_file
from thermocline.store.state import load_or_make_identity, load_origin
from thermocline.tiered.segments import BrokerKeys

LOG_HEAD_BYTES = 8
LOST_AND_FOUND = "lost+found"
"""What a file system has at its root before anything is written to it."""


def was_recovered(disk: Disk, store: StoreConfig, keys: BrokerKeys) -> bool:
    """Whether the directory is a store that came from there.

    Raises:
        InvalidRequestError: It holds messages of something else.
    """
    if disk.exists(store.identity_path):
        identity = load_or_make_identity(disk, store.identity_path, make_id=lambda: "")
        origin = load_origin(disk, store.origin_path)
        if origin is not None and (origin.store_id, origin.root) == (identity.store_id, keys.root):
            return True
        if origin is None and not has_messages(disk, store):
            return False
    elif disk.exists(recovering_path(store)) or _is_empty(disk, store):
        return False
    raise InvalidRequestError("the directory holds a store already: recovery needs an empty one", path=store.root_path)


def _is_empty(disk: Disk, store: StoreConfig) -> bool:
    """Whether nothing is there but what a recovery makes before its mark is."""
    for name in disk.list_directory(store.root_path):
        path = f"{store.root_path}/{name}"
        if path == store.own_path and disk.is_directory(path):
            if any(f"{path}/{each}" != _unfinished_mark_path(store) for each in disk.list_directory(path)):
                return False
        elif path != store.lock_path and name != LOST_AND_FOUND:
            return False
    return True


def _unfinished_mark_path(store: StoreConfig) -> str:
    return recovering_path(store) + TEMPORARY_SUFFIX


def has_messages(disk: Disk, store: StoreConfig) -> bool:
    """Whether any file of the log begins with something."""
    for name in disk.list_directory(store.commit_log_path) if disk.exists(store.commit_log_path) else ():
        file = disk.open(f"{store.commit_log_path}/{name}")
        try:
            if any(file.read_at(LOG_HEAD_BYTES, 0)):
                return True
        finally:
            file.close()
    return False


def clear(disk: Disk, store: StoreConfig) -> None:
    """Leave nothing of a store but the mark of a recovery under way."""
    make_durable_directory(disk, store.own_path)
    replace_file(disk, recovering_path(store), b"", keep_backup=False)
    if disk.exists(store.identity_path):
        disk.remove(store.identity_path)  # from here on it is no store
        disk.sync_directory(store.own_path)
    for name in disk.list_directory(store.own_path):
        path = f"{store.own_path}/{name}"
        if path != recovering_path(store):
            _remove(disk, path)
    for name in STORE_NAMES:
        path = f"{store.root_path}/{name}"
        if path not in (store.own_path, store.lock_path) and disk.exists(path):
            _remove(disk, path)


def _remove(disk: Disk, path: str) -> None:
    if disk.is_directory(path):
        disk.remove_tree(path)
    else:
        disk.remove(path)
