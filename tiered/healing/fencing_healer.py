"""Fencing healer: puts back ballots, and settles what is proposed, for one scrub of one writer.

A ballot is a name and two bytes that are always the same, so putting it again is the same put, late; those above our
own are left alone, for they would be another writer's. A proposal for the next version that is damaged when we are at
work is of a writer whom our ballot fences (one that we inherited was settled when we began), so the version may go to
an entry of ours; then it is settled like any other.
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
    """Heal what can be; the keys of it. Called while nobody else commits (`TierService.alone`).

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
