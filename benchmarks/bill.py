"""The request bill: what a workload has asked of the object store, and the meter that counts it by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.synthetic_cold_tier import KEYS
from thermocline.tiered.objects import ObjectStore, SegmentOffset
from thermocline.tiered.wrappers import Result, StoreCall, Verb, WrappingObjectStore

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WORKS = ("", "merge ", "index ")


def kind_of(key: str) -> str:
    """What a PUT was for."""
    if key.startswith(KEYS.packs_prefix):
        return "packs"
    if key.startswith(KEYS.topics_prefix):
        return "segments"
    if key.startswith(KEYS.indexes_prefix):
        return "indexes"
    if key.startswith(KEYS.ledger_prefix):
        return "ledger"
    return "state" if "/state/" in key else "checkpoints"


@dataclass(frozen=True, slots=True)
class RangeRead:
    """One range of an object that was read."""

    key: str
    start: int
    size_bytes: int


class KindMeter(WrappingObjectStore):
    """Counts PUTs and their bytes by kind, and notes ranges that were read. `work` goes before the kind: it sets
    merging and indexing apart. `called` is called after each answered call."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.puts: Counter[str] = Counter()
        self.put_bytes: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        self.ranges: list[RangeRead] = []
        self.work = ""
        self.called: Callable[[], None] = lambda: None

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb in (Verb.PUT, Verb.CREATE_IF_ABSENT):
            kind = self.work + kind_of(call.key)
            self.puts[kind] += 1
            self.put_bytes[kind] += call.sent_bytes
            self.largest[kind] = max(self.largest[kind], call.sent_bytes)
        result = await attempt()
        self.called()
        return result

    async def get_range(self, key: str, *, start: int, end: int) -> bytes:
        """See ObjectStore."""
        data = await super().get_range(key, start=SegmentOffset(start), end=SegmentOffset(end))
        self.ranges.append(RangeRead(key, start, len(data)))
        return data


@dataclass(frozen=True, slots=True)
class TopicRead:
    """One topic read back from its first offset to its end: sizes of the requested ranges of records, and of those of
    footers alone; and its stored bytes."""

    record_sizes: tuple[int, ...]
    footer_sizes: tuple[int, ...]
    stored_bytes: int

    @classmethod
    def of(cls, ranges: Sequence[RangeRead], *, footer_starts: Mapping[str, int], stored_bytes: int) -> TopicRead:
        """`footer_starts`: where in each object the records end."""
        footers = [each.start >= footer_starts[each.key] for each in ranges]
        return cls(
            tuple(each.size_bytes for each, is_footer in zip(ranges, footers, strict=True) if not is_footer),
            tuple(each.size_bytes for each, is_footer in zip(ranges, footers, strict=True) if is_footer),
            stored_bytes,
        )

    @property
    def size_bytes(self) -> int:
        """All that was read."""
        return sum(self.record_sizes) + sum(self.footer_sizes)

    @property
    def bytes_per_get(self) -> float:
        """Bytes of a range of records, on average."""
        return sum(self.record_sizes) / len(self.record_sizes)

    @property
    def read_per_byte(self) -> float:
        """Bytes that were read for each one that is stored."""
        return self.size_bytes / self.stored_bytes

    @property
    def footer_part(self) -> float:
        """The part of the bytes that is footers."""
        return sum(self.footer_sizes) / self.size_bytes

    def small_part(self, size_bytes: int) -> float:
        """The part of the bytes that is records in smaller ranges."""
        return sum(size for size in self.record_sizes if size < size_bytes) / self.size_bytes


@dataclass(slots=True)
class Bill:
    """The counts. `expires`: one class has so short a TTL that packs expire meanwhile. `sealed_per_record`:
    how often each record was written, merges apart. `merged_part`: bytes that merges wrote, to those of messages."""

    topics: int
    queues: int
    classes: int
    gib: float
    expires: bool = False
    puts_per_gib: dict[str, float] = field(default_factory=dict)
    oldest_ms: int = 0
    longest_round_s: float = 0.0
    packs_per_topic_max: int = 0
    largest_entry_bytes: int = 0
    largest_state_bytes: int = 0
    checkpoint_part: float = 0.0
    sealed_per_record: float = 0.0
    merged_part: float = 0.0
    expired_packs: int = 0
    reads: dict[str, TopicRead] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """The workload's name."""
        return f"{self.topics} x {self.queues}"

    def sum_of(self, *kinds: str) -> float:
        """PUTs a GiB of some kinds together."""
        return sum(self.puts_per_gib.get(kind, 0.0) for kind in kinds)

    @property
    def data_and_ledger(self) -> float:
        """What sealing asks for."""
        return self.sum_of("packs", "segments", "ledger")

    @property
    def state_and_checkpoints(self) -> float:
        """What recovery asks for."""
        return self.sum_of("state", *(f"{work}checkpoints" for work in WORKS))

    @property
    def all_puts(self) -> float:
        """Everything, merging and indexing too."""
        return sum(self.puts_per_gib.values())

    @property
    def by_kind(self) -> str:
        """PUTs a GiB by kind, the most first."""
        kinds = sorted(self.puts_per_gib.items(), key=lambda item: -item[1])
        return ", ".join(f"{kind} {count:.1f}" for kind, count in kinds)

    def __str__(self) -> str:
        lines = [
            f"{self.shape} topics and queues, {self.classes} TTL classes, {self.gib:.2f} GiB",
            f"  PUTs a GiB      {self.by_kind}",
            f"  data and ledger {self.data_and_ledger:.1f}; state and checkpoints {self.state_and_checkpoints:.1f};"
            f" all {self.all_puts:.1f}",
            f"  oldest message outside the bucket {self.oldest_ms / 1000:.1f} s;"
            f" longest round {self.longest_round_s:.1f} s",
            f"  packs of one topic, at most {self.packs_per_topic_max}; merges wrote {self.merged_part:.2f} bytes a"
            f" byte; packs that died by TTL {self.expired_packs}",
            f"  largest ledger entry {self.largest_entry_bytes} bytes, state snapshot {self.largest_state_bytes};"
            f" checkpoints {100 * self.checkpoint_part:.2f} % of the messages",
        ]
        lines += [
            f"  {topic} read back: {len(read.record_sizes)} ranges of {read.bytes_per_get / KIB:.0f} KiB,"
            f" {100 * read.small_part(512 * KIB):.2f} % of the bytes in smaller ones than 512 KiB,"
            f" {len(read.footer_sizes)} of footers, {100 * read.footer_part:.2f} % of the bytes;"
            f" {read.read_per_byte:.3f} bytes read a stored byte"
            for topic, read in sorted(self.reads.items())
        ]
        return "\n".join(lines)
