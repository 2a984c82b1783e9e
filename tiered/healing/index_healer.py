"""Index healer: rebuilds a broken index object from the parts of the segments that now hold its range.

Records expired since are not indexed again. Large ranges become several objects of the lowest level, which are merged
as any others. While one is broken, lookups use its segments (`lookups/key_search.py`), so no result is missing, and
index objects are never quarantined. Belongs to the tier process's loop.
"""

from __future__ import annotations

import logging

from thermocline.remoting.errors import MQError
from thermocline.tiered.catalog import Catalog, LedgerChanges
from thermocline.tiered.findings import Finding, Outcome
from thermocline.tiered.indexes import IndexBuilder, IndexResult, LogItems, cut, topic_filter
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.service import TierService

logger = logging.getLogger(__name__)


class IndexHealer:
    """See the module's header."""

    def __init__(self, *, writer: LedgerWriter, service: TierService, builder: IndexBuilder) -> None:
        self._writer = writer
        self._service = service
        self._builder = builder

    async def heal(self, finding: Finding) -> Outcome | None:
        """Return None when the object was removed from the catalog meanwhile.

        Raises:
            FencedError: A later writer has taken over.
            ObjectStoreUnavailableError: No answer; what was written has been given up.
            CorruptDataError: A segment of its range is damaged.
            ObjectNotFoundError: A segment of its range was collected meanwhile.
        """
        catalog = self._writer.catalog
        index = catalog.indexes.get(finding.segment_id)
        if index is None:
            return None
        results: list[IndexResult] = []
        items = LogItems.of_catalog(catalog).between(index.start, index.end)
        try:
            start = index.start
            while start < index.end:
                end = cut(items, start=start, end=index.end)
                if end <= start:
                    end = index.end  # there is no record behind it, but perhaps one in quarantine
                results.append(
                    await self._builder.build(
                        catalog, items, start=start, end=end, only=index.ttl_class, wants=topic_filter(index)
                    )
                )
                start = end
            made = tuple(entry for result in results for entry in result.indexes_in)

            def change(newest: Catalog) -> LedgerChanges | None:
                if index.index_id not in newest.indexes:
                    return None
                return LedgerChanges(indexes_in=made, indexes_out=(index.index_id,))

            is_in = await self._service.amend(change)
        except MQError:
            self._give_up(results)
            raise
        if not is_in:
            self._give_up(results)
            return None
        logger.warning("index object made anew index_id=%s new=%d", index.index_id, len(made))
        return Outcome.HEALED

    def _give_up(self, results: list[IndexResult]) -> None:
        for result in results:
            self._builder.give_up(result)
