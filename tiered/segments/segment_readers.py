"""SegmentReaders: open segments, bounded by the bytes that their footers take; those used longest ago are closed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Set

from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_reader import SegmentReader

FOOTER_BYTES_MAX = 64 * 1024 * 1024
_TRIM_INTERVAL = 64


class SegmentReaders:
    """One reader per segment. Belongs to one event loop; a reader dropped from the cache stays usable for its users."""

    def __init__(self, store: ObjectStore, *, footer_bytes_max: int = FOOTER_BYTES_MAX) -> None:
        self.store = store
        self._footer_bytes_max = footer_bytes_max
        self._readers: OrderedDict[str, SegmentReader] = OrderedDict()
        self._opened_count = 0

    def of(self, entry: SegmentEntry) -> SegmentReader:
        """The reader of a segment; sends no request."""
        reader = self._readers.get(entry.segment_id)
        if reader is None:
            reader = self._readers[entry.segment_id] = SegmentReader(self.store, entry)
            self._opened_count += 1
            if self._opened_count % _TRIM_INTERVAL == 0:
                self._trim()
        self._readers.move_to_end(entry.segment_id)
        return reader

    def forget(self, keys: Set[str]) -> None:
        """Let go of the segments whose records lie in these objects."""
        if keys:
            for segment_id in [each for each, reader in self._readers.items() if reader.entry.log.key in keys]:
                del self._readers[segment_id]

    def _trim(self) -> None:
        """Footers arrive after their reader was made, so their size is added up now and then."""
        total_bytes = sum(reader.memory_bytes for reader in self._readers.values())
        while total_bytes > self._footer_bytes_max and len(self._readers) > 1:
            _, oldest = self._readers.popitem(last=False)
            total_bytes -= oldest.memory_bytes
