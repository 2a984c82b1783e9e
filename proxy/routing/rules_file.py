"""RulesFile: the file of routing rules, and what of it is in force.

A change is read within half a second (remoting/tls/file_changes.py). What cannot be rules leaves those from before in
force, with one line in the log. Replace the file (write another, then rename it), so that it is never there in part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from thermocline.proxy.routing.rules import Rules
from thermocline.remoting.errors import SettingError
from thermocline.remoting.tls import CHECK_INTERVAL_S, FileChanges

__all__ = ["RulesFile"]

logger = logging.getLogger(__name__)

FILE_BYTES_MAX = 4 << 20


class RulesFile:
    """See the module. Belongs to one event loop."""

    def __init__(self, path: str, parse: Callable[[bytes], Rules]) -> None:
        """Read the file; `parse` makes rules of it.

        Raises:
            SettingError: It cannot be read, or holds no rules.
        """
        self._path = path
        self._parse = parse
        self._changes = FileChanges([path])
        self.rules = self._read()
        self.refusal = ""
        """Why the file as it is now is not in force; "" while it is."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the file from now on."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Follow it no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.read_if_changed()

    async def read_if_changed(self) -> None:
        """Read the file if it has changed, and has stayed the same since the last call."""
        if not self._changes.are_settled():
            return
        try:
            rules = await asyncio.to_thread(self._read)
        except SettingError as error:
            self.refusal = str(error)
            logger.error("routing rules are refused, those from before stay in force: %s", error)
            return
        self.rules = rules
        self.refusal = ""
        logger.info("routing rules changed path=%s rules=%d", self._path, len(rules.rules))

    def _read(self) -> Rules:
        """The rules in the file.

        Raises:
            SettingError: There are none.
        """
        try:
            with Path(self._path).open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            text = f"the file of routing rules cannot be read: {error.strerror}"
            raise SettingError(text, path=self._path) from error
        if len(data) > FILE_BYTES_MAX:
            raise SettingError(f"the file of routing rules has more than {FILE_BYTES_MAX} bytes", path=self._path)
        try:
            return self._parse(data)
        except SettingError as error:
            raise SettingError(error.message, path=self._path, **error.context) from error
