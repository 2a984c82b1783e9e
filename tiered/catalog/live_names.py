"""LiveNames: whether a catalog names an object, checked one key at a time.

`Catalog.live_keys` makes a set of all names: of a million segments three million texts. Here a key is split: its
folder gives the topic, its name the segment's id, and the segment lists its objects. All other keys (packs, index
objects, quarantine) are in a set.
"""

from __future__ import annotations

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.segments import escape_name, segment_id_of


class LiveNames:
    """The names in one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        topics = catalog.topics.values()
        self._segments = {escape_name(topic.topic): topic.segments for topic in topics if topic.segments}
        self._others = {pack.key for pack in catalog.packs.values()}
        self._others.update(index.key for index in catalog.indexes.values())
        self._others.update(key for topic in topics for kept in topic.quarantine for key in kept.segment.keys)
        self._others.update(key for segments in self._segments.values() for key in segments.odd_keys())

    def __contains__(self, key: str) -> bool:
        if key in self._others:
            return True
        segments = self._segments.get(key.rpartition("/")[0].rpartition("/")[2])
        segment_id = segment_id_of(key)
        if segments is None or segment_id is None:
            return False
        found = segments.find(str(segment_id))
        return found is not None and key in found.keys
