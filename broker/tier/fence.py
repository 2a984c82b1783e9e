"""Fence: this broker may not write to the cold tier. From then on it takes no message, unregisters from the NameServers
or ends, and deletes nothing.

    taken over   another broker writes to this cold tier now: the log is closed for good, and reads are served on
    refused      the prefix holds another store's history: this broker must not run at all

Under a controller both mean that another broker of the set was elected, of which this one has no notice yet: until its
role changes it takes no message, and its log is closed cleanly then.
Belongs to the hot process's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from thermocline.broker.helpers import Fenced
from thermocline.store.log import CommitLog

logger = logging.getLogger(__name__)


class Fence:
    """Stands open until `close`. `reason` is empty until then; `later_epoch`: whose writer has taken over."""

    def __init__(
        self,
        log: CommitLog,
        *,
        refusal: asyncio.Future[str],
        unregister: Callable[[], Coroutine[Any, Any, None]],
        has_controller: bool = False,
    ) -> None:
        """`refusal`: done when this broker must not run. `unregister`: leave the NameServers. `has_controller`: this
        broker gets another role soon."""
        self._has_controller = has_controller
        self._log = log
        self._refusal = refusal
        self._unregister = unregister
        self._leaving: asyncio.Task[None] | None = None
        self.reason = ""
        self.later_epoch = 0

    def close(self, fenced: Fenced) -> None:
        """The tier process says so; the first time counts."""
        if self.reason:
            return
        reason = self.reason = fenced.reason
        self.later_epoch = fenced.later_epoch
        if fenced.is_refused and not self._has_controller:
            self._log.pause(reason)
            self._refusal.set_result(reason)
            return
        logger.error("fenced: another broker writes to this cold tier; sends are refused reason=%s", reason)
        if self._has_controller:
            self._log.refuse_all(f"fenced: {reason}")
        else:
            self._log.fail(f"fenced: {reason}")
        self._leaving = asyncio.get_running_loop().create_task(self._unregister())
