"""RoundCosts: the most write and list requests that a round of the tier service sends.

    segment    PUTS_PER_SEGMENT for each topic that has filled one, 1 for each that has `own_bytes`
    pack       1, of at most `pack_bytes` of one TTL class, and of as many topics as one ledger entry may name
    commit     `LedgerWriter.commits_cost_max`, for each entry

One turn of a round takes one plan of each topic: a segment, or a piece of at most `piece_bytes` in a pack. Further
records need another turn with its own costs. Arithmetic on the backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.merging import own_bytes_of
from thermocline.tiered.packs import PUTS_PER_SEGMENT
from thermocline.tiered.sealing.pack_sealer import ENTRY_BYTES_MAX, said_bytes
from thermocline.tiered.sealing.seal_backlog import SealBacklog

PIECE_OF_UPLOADS = 4
"""A piece that is packed to save requests takes at most this part of the upload memory, or one segment."""


def piece_bytes_of(config: TierConfig) -> int:
    """Raw bytes of a full topic that go into a pack as one piece."""
    return max(config.segment_bytes, min(config.pack_bytes, config.upload_budget_bytes) // PIECE_OF_UPLOADS)


class RoundCosts:
    """See the module's header."""

    def __init__(
        self,
        writer: LedgerWriter,
        backlog: SealBacklog,
        config: TierConfig,
        *,
        class_of: Callable[[str], str],
        has_packs: bool,
        is_budgeted: bool = False,
        put_requests: Callable[[int], int] = lambda size_bytes: 1,
    ) -> None:
        """`put_requests`: requests to store an object of that many bytes. `is_budgeted`: there is a request budget."""
        self._writer = writer
        self._backlog = backlog
        self._config = config
        self._class_of = class_of
        self._has_packs = has_packs
        self._put_requests = put_requests
        self.piece_bytes = piece_bytes_of(config)
        self.own_bytes = own_bytes_of(self.piece_bytes if is_budgeted else config.segment_bytes)
        """From how many bytes on a topic is sealed by itself, as a merge would give it a segment of its own."""

    def is_full(self, topic: str) -> bool:
        """Whether a topic fills a segment."""
        progress = self._backlog.topics.get(topic)
        return progress is not None and progress.waiting_bytes >= self._config.segment_bytes

    def seal(self, topics: Sequence[str], is_packed: bool) -> int:
        """Requests to seal topics in one turn. Small ones go into packs, together with all other small ones that wait.
        `is_packed`: exactly these topics go into packs, full ones too."""
        if not self._has_packs:
            return self._segments(len(topics)) + self._writer.commits_cost_max(1)
        if is_packed:
            return self._packed(topics)
        full_count = sum(map(self.is_full, topics))
        if full_count == len(topics):
            return self._segments(full_count) + self._writer.commits_cost_max(1)
        small = [topic for topic in self._backlog.waiting() if not self.is_full(topic)]
        large_count = sum(self._backlog.topics[topic].waiting_bytes >= self.own_bytes for topic in small)
        large_puts = large_count * self._put_requests(self._config.segment_bytes)
        return self._segments(full_count) + large_puts + self._packed(small)

    def packs_of_small(self) -> int:
        """Requests to seal all small topics that wait, without the commit."""
        return self._packs([topic for topic in self._backlog.waiting() if not self.is_full(topic)])[0]

    def _segments(self, count: int) -> int:
        return count * (PUTS_PER_SEGMENT - 1 + self._put_requests(self._config.segment_bytes))

    def _packed(self, topics: Sequence[str]) -> int:
        pack_puts, entry_count = self._packs(topics)
        return pack_puts + self._writer.commits_cost_max(entry_count)

    def _packs(self, topics: Sequence[str]) -> tuple[int, int]:
        """PUTs of the packs, and ledger entries."""
        raw_bytes: dict[str, int] = {}
        entry_bytes: dict[str, int] = {}
        for topic in topics:
            progress = self._backlog.topics.get(topic)
            if progress is None:
                continue
            name = self._class_of(topic)
            raw_bytes[name] = raw_bytes.get(name, 0) + min(progress.waiting_bytes, self.piece_bytes)
            entry_bytes[name] = entry_bytes.get(name, 0) + said_bytes(topic, len(progress.queues))
        puts = 0
        for name, size_bytes in raw_bytes.items():
            # Any two entries in a row exceed the bound of one together.
            by_bytes = 2 * size_bytes // self._config.pack_bytes
            by_entry = 2 * entry_bytes[name] // ENTRY_BYTES_MAX
            puts += (1 + by_bytes + by_entry) * self._put_requests(min(size_bytes, self._config.pack_bytes))
        return puts, 1 + 2 * sum(entry_bytes.values()) // ENTRY_BYTES_MAX
