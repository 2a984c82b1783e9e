"""LiveNames: whether the newest catalog names an object, asked one by one.

`Catalog.live_keys` makes a set of all names: of a million segments three million texts. Here a name is taken apart: its
folder is its topic's, its name has the segment's id, and the segment knows its objects. What is named otherwise (packs,
index objects, what is in quarantine) is a set.
"""

from __future__ import annotations

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.segments import escape_name, segment_id_of


class LiveNames:
    """Of one catalog."""

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
