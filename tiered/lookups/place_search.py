"""Finds the record stored at a place in the log, by one request where index objects cover it."""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.index_format import IndexedPlace, IndexObject
from thermocline.tiered.objects import ObjectStore

logger = logging.getLogger(__name__)


class PlaceAnswer(msgspec.Struct, frozen=True):
    """The definite answer of index objects; `place` None: no unexpired record was stored there."""

    place: IndexedPlace | None


async def find_indexed_place(
    store: ObjectStore, catalog: Catalog, physical_offset: PhysicalOffset
) -> PlaceAnswer | None:
    """Search a place in the object that covers it; None when no object can answer, and segments must be searched.

    ObjectStoreUnavailableError when the store gives no answer.
    """
    if physical_offset >= catalog.indexed_to:
        return None
    for index in catalog.indexes.values():
        if not index.is_of_places or not index.start <= physical_offset < index.end:
            continue
        try:
            found = await IndexObject(store, index).find_place(physical_offset)
        except (CorruptDataError, ObjectNotFoundError) as error:
            logger.warning("index object cannot be read key=%s: %s", index.key, error)
            return None
        return PlaceAnswer(found) if found is not None or not index.gaps else None
    return PlaceAnswer(None)
