"""State healer: saves the state again, until the newest two snapshots are whole.

The content of a broken snapshot is not needed: its broker is running and saves its state again. A snapshot with a name
that neither this writer nor an earlier one can have written is foreign, and stays.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from thermocline.remoting.errors import CorruptDataError, ObjectStoreUnavailableError, UnavailableError
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.scrub import WriterView, check_states, list_states
from thermocline.tiered.state import KEPT_COUNT, StateLog

logger = logging.getLogger(__name__)


class StateHealer:
    """For one writer. Each save keeps its order with the broker's rounds."""

    def __init__(self, writer: LedgerWriter, states: StateLog, renew: Callable[[], Awaitable[None]]) -> None:
        """`renew` saves a snapshot now."""
        self._writer = writer
        self._view = WriterView(writer, states)
        self._renew = renew

    async def heal(self, findings: list[Finding]) -> set[str]:
        """Return the keys of snapshots that are whole again, or replaced.

        Raises:
            FencedError: A later writer has taken over.
            ObjectStoreUnavailableError: No answer.
        """
        ours = {each.key for each in findings if each.kind is ObjectKind.STATE and each.problem is not Problem.EXTRA}
        if not ours:
            return set()
        try:
            for _ in range(KEPT_COUNT):
                await self._renew()
                if not await self._broken():
                    break
        except ObjectStoreUnavailableError:
            raise
        except (UnavailableError, CorruptDataError) as error:
            logger.error("state not saved anew: %s", error)
        healed = ours - await self._broken()
        logger.warning("state saved anew root=%s healed=%d of=%d", self._writer.keys.root, len(healed), len(ours))
        return healed

    async def _broken(self) -> set[str]:
        writer = self._writer
        listing = await list_states(writer.store, writer.keys, self._view)
        state = await check_states(writer.store, writer.keys, listing, catalog=writer.catalog, view=self._view)
        return {finding.key for finding in state.findings if finding.problem is not Problem.EXTRA}
