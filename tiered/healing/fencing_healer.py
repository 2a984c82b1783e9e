"""Fencing healer: restores ballots, and settles proposals, for one scrub of one writer.

A ballot is a name and two fixed bytes, so restoring it equals a late put; ballots above this writer's own are not
restored, as they belong to other writers. A damaged proposal for the next version is of a writer that this ballot
fences (inherited ones were settled at the start), so the version may go to an entry of this writer; then the proposal
is settled like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.ledger import BALLOT_BYTES, LedgerWriter
from thermocline.tiered.scrub import WriterView

logger = logging.getLogger(__name__)

FENCING_KINDS = frozenset({ObjectKind.BALLOT, ObjectKind.PROPOSAL})


async def heal_fencing(writer: LedgerWriter, findings: Iterable[Finding]) -> set[str]:
    """Heal what can be healed; return the keys of it. Called with exclusive use of the ledger (`TierService.alone`).

    Raises:
        FencedError: A later writer has taken over.
        ObjectStoreUnavailableError: No answer; the rest is left to a later scrub.
    """
    healed: set[str] = set()
    own = WriterView(writer).ballot_key
    proposals = [each for each in findings if each.kind is ObjectKind.PROPOSAL and each.problem is not Problem.EXTRA]
    for finding in findings:
        if finding.kind is ObjectKind.BALLOT and own is not None and finding.key <= own:
            await writer.store.put(finding.key, BALLOT_BYTES)
            logger.warning("ballot put back key=%s", finding.key)
            healed.add(finding.key)
    if own is not None and any(finding.version > writer.version for finding in proposals):
        await writer.renew_checkpoint()
    for finding in proposals:
        if finding.version <= writer.version:
            logger.warning("proposal settled key=%s", finding.key)
            healed.add(finding.key)
    return healed
