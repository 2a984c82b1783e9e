"""Key index: the interface through which request processors find the log positions of messages by key.

The index files belong to the index process; the hot process asks it over the unix socket and reads the records itself.
An answer may contain records of another key with the same hash, records of an earlier topic of the same name, and
records whose log file is deleted: the caller checks each.
Source: IndexService.java (queryOffset), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from thermocline.remoting.offsets import PhysicalOffset


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a topic stored within `[begin_ms, end_ms]`; `index_type`: `K` key, `U` unique id, `T` tag."""

    topic: str
    key: str
    index_type: str
    begin_ms: int
    end_ms: int
    count_max: int


class KeyMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The physical offsets found, newest first, and the last record indexed (zeroes for an empty index)."""

    physical_offsets: Sequence[PhysicalOffset]
    last_store_timestamp_ms: int
    last_physical_offset: PhysicalOffset


class KeyIndex(Protocol):
    """The index process as a client sees it. Belongs to the hot process's event loop."""

    async def find(self, query: KeyQuery) -> KeyMatches:
        """Look a key up.

        Raises:
            UnavailableError: No answer now; the same query may be retried.
        """
