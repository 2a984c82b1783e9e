"""Ledger copy: a copy of this broker's ledger writes on the local disk, for repairs.

A wrapper around an object store: bytes of ledger entries and checkpoints are copied before they are stored, and
deleted with them. Reads are passed through. Copies are not made durable: they are a convenience, and their users check
them (`ledger_healer.py`). A copy that cannot be written is logged once.

    {folder}/{the object's key behind the broker's root, with + for /}
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from thermocline.remoting.errors import UnavailableError
from thermocline.store.files import Disk
from thermocline.tiered.objects import Data, ObjectStore
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

logger = logging.getLogger(__name__)


class LedgerCopyStore(WrappingObjectStore):
    """Belongs to the tier process's loop; a write of some kilobytes to the page cache is all it waits for."""

    def __init__(self, inner: ObjectStore, *, keys: BrokerKeys, disk: Disk, folder: str) -> None:
        super().__init__(inner)
        self._root = f"{keys.root}/"
        self._prefixes = (keys.ledger_prefix, keys.checkpoints_prefix)
        self._disk = disk
        self.folder = folder
        self._failed = False
        disk.make_directory(folder)

    def find(self, key: str) -> bytes | None:
        """The bytes that were stored under `key`, as far as is known. They may be torn or of another life."""
        try:
            return self._disk.read(self._path(key))
        except OSError:
            return None

    def entry_keys(self) -> list[str]:
        """The ledger entries of which there are copies, the newest last. A copy does not tell that its entry was
        committed."""
        try:
            names = self._disk.list_directory(self.folder)
        except OSError:
            return []
        keys = (self._root + name.replace("+", "/") for name in names)
        return sorted(key for key in keys if key.startswith(self._prefixes[0]))

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        self._keep(key, data)
        await super().put(key, data)

    async def create_if_absent(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        self._keep(key, data)
        await super().create_if_absent(key, data)

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        await super().delete(key)
        self._forget(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        all_keys = tuple(keys)
        await super().delete_many(all_keys)
        for key in all_keys:
            self._forget(key)

    def _keep(self, key: str, data: Data) -> None:
        if not key.startswith(self._prefixes):
            return
        try:
            file = self._disk.open(self._path(key), create=True)
            try:
                file.truncate(0)
                file.write_at(data, 0)
            finally:
                file.close()
        except (OSError, UnavailableError) as error:
            if not self._failed:
                logger.warning("ledger copy cannot be written folder=%s: %s", self.folder, error)
            self._failed = True

    def _forget(self, key: str) -> None:
        if not key.startswith(self._prefixes):
            return
        try:
            self._disk.remove(self._path(key))
        except OSError as error:
            logger.debug("no ledger copy to forget key=%s: %s", key, error)

    def _path(self, key: str) -> str:
        return f"{self.folder}/{key.removeprefix(self._root).replace('/', '+')}"
