"""Lasting work: tasks beside sealing, which go on while the ledger is open, and are started again when they fail.

Merging and indexing handle the errors that they expect: a store that is away, a full disk, damage. Any other, as a bug
or a system without free file descriptors raises it, must not end them unnoticed: packs would add up, and lookups would
search ever more of them, until the process ends. Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

PAUSE_S = 60.0


async def keep_working(work: Callable[[], Awaitable[None]], *, name: str, pause_s: float = PAUSE_S) -> None:
    """Run `work` until it returns, or this is cancelled. When it raises, log the error, and run it again after a pause;
    an error with the text of the one before is not logged again."""
    last_error = ""
    while True:
        try:
            await work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != last_error:
                logger.exception("%s has failed, it begins again retry_s=%.0f", name, pause_s)
            last_error = text
        else:
            return
        await asyncio.sleep(pause_s)
