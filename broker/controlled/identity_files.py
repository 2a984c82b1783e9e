"""Identity files: the number that the controllers have given this broker, as RocketMQ keeps it.

    brokerIdentity        cluster#broker name#number
    brokerIdentity-temp   cluster#broker name#number#check code      the number is applied for

    none -> next number asked -> brokerIdentity-temp -> number applied for -> brokerIdentity -> -temp removed

Rules
  - The application is durable before it is made: its answer may be lost, and the same number and check code are applied
    for again.
  - A number is durable before it is used. It is never changed here; an operator removes the file.
  - Names that RocketMQ's form cannot hold (with `#`) are refused.
Owner: the loop thread; each change blocks for two syncs, and comes once in the life of a store.
Source: store/ha/autoswitch/BrokerMetadata.java, TempBrokerMetadata.java, MetadataFile.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import CorruptDataError, InvalidParameterError
from thermocline.store.files import Disk, make_durable_directory, parent_of, replace_file

logger = logging.getLogger(__name__)

FILE_NAME = "brokerIdentity"
APPLICATION_SUFFIX = "-temp"
SEPARATOR = "#"
FIRST_BROKER_ID = 1


class BrokerNames(msgspec.Struct, frozen=True, kw_only=True):
    """What a number belongs to."""

    cluster: str
    broker_name: str


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is applied for."""

    broker_id: int
    check_code: str
    """`address;milliseconds`: with it the same number may be applied for again."""


class IdentityFiles:
    """One store's."""

    def __init__(self, disk: Disk, path: str, names: BrokerNames) -> None:
        """Reads the files. `path`: of `brokerIdentity`.

        Raises:
            InvalidParameterError: They belong to another broker, or the names do not fit into them.
            CorruptDataError: The identity cannot be read.
        """
        for name in (names.cluster, names.broker_name):
            if not name or SEPARATOR in name or "\n" in name:
                raise InvalidParameterError(
                    f"under a controller a name is not empty and has no {SEPARATOR}", value=name
                )
        self._disk = disk
        self._path = path
        self._application_path = path + APPLICATION_SUFFIX
        self._names = names
        self.broker_id: int | None = self._load()
        """The number; None: it has none yet."""
        self.application: Application | None = None if self.broker_id is not None else self._load_application()
        """What is applied for; None with a number, or before."""

    def apply_for(self, application: Application) -> None:
        """An application is about to be made; durable on return.

        Raises:
            OSError, DiskFullError: It is not durable, and must not be made.
        """
        assert self.broker_id is None
        assert application.broker_id >= FIRST_BROKER_ID
        self._write(self._application_path, application.broker_id, application.check_code)
        self.application = application

    def granted(self) -> None:
        """The controllers have granted the application: its number is this broker's. Durable on return.

        Raises:
            OSError, DiskFullError: It is not durable; the same may be applied for again.
        """
        assert self.application is not None
        self._write(self._path, self.application.broker_id)
        self.broker_id = self.application.broker_id
        self.discard_application()

    def discard_application(self) -> None:
        """Forget what was applied for: it was refused, or is granted. A crash may keep it, which does no harm."""
        self.application = None
        if self._disk.exists(self._application_path):
            self._disk.remove(self._application_path)

    def _write(self, path: str, *fields: int | str) -> None:
        text = SEPARATOR.join(map(str, (self._names.cluster, self._names.broker_name, *fields)))
        make_durable_directory(self._disk, parent_of(path))  # of a new store
        replace_file(self._disk, path, text.encode(), keep_backup=False)

    def _load(self) -> int | None:
        fields = self._read(self._path)
        if fields is None:
            return None
        if len(fields) < 3:
            raise CorruptDataError("the broker's identity cannot be read", path=self._path)
        self._check_names(fields, self._path)
        return self._number(fields[2], self._path)

    def _load_application(self) -> Application | None:
        path = self._application_path
        fields = self._read(path)
        if fields is None:
            return None
        if len(fields) < 4 or not fields[3]:
            # Nothing was applied for yet, or RocketMQ's broker was stopped while it wrote.
            logger.warning("application for a broker id cannot be read, a new one is made path=%s", path)
            self._disk.remove(path)
            return None
        self._check_names(fields, path)
        return Application(broker_id=self._number(fields[2], path), check_code=fields[3])

    def _read(self, path: str) -> list[str] | None:
        """The fields of a file; None if it is not there or is empty, as a crash of RocketMQ's broker may leave it."""
        if not self._disk.exists(path):
            return None
        try:
            text = self._disk.read(path).decode()
        except UnicodeDecodeError as error:
            raise CorruptDataError("the broker's identity cannot be read", path=path, reason=str(error)) from error
        return text.split(SEPARATOR) if text else None

    def _number(self, text: str, path: str) -> int:
        if not text.isdecimal() or int(text) < FIRST_BROKER_ID:
            raise CorruptDataError("the broker's identity has no broker id", path=path, value=text)
        return int(text)

    def _check_names(self, fields: list[str], path: str) -> None:
        for setting, found, wanted in (
            ("brokerClusterName", fields[0], self._names.cluster),
            ("brokerName", fields[1], self._names.broker_name),
        ):
            if found != wanted:
                raise InvalidParameterError(
                    f"this store is a replica with {setting}={found}, the settings say {wanted}:"
                    f" change the setting, or take another store",
                    path=path,
                )
