"""What is wanted of the request bill (`request_bill.py`), clause by clause.

A slice of it at another scale is judged by the same clauses (`tests/benchmarks/test_request_bill.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.bill import KIB, Bill
from benchmarks.verdicts import Verdict

DATA_AND_LEDGER_MAX = 40.0
PER_CLASS_MAX = 9.0
STATE_AND_CHECKPOINTS_MAX = 15.0
ALL_MAX = 40.0
ALL_PER_CLASS_MAX = 14.0
"""Of a further TTL class: its packs, and what they are merged and indexed to."""
AGE_S_MAX = 120.0
ENTRY_KIB_MAX = 256.0
ENTRY_TOPICS_MAX = 2_500
"""Of so many topics; of more of them it may be larger in proportion."""
CHECKPOINT_PERCENT_MAX = 2.0
RANGE_BYTES_MIN = 512 * KIB
SMALL_PERCENT_MAX = 0.5
"""Of the bytes of a large topic those of records in smaller ranges: a piece may be smaller as a whole. Footers are read
apart, and count as bytes read."""
READ_PER_BYTE_MAX = 1.2
SHAPES_RATIO_MAX = 1.3
"""One topic costs less than many: what it sends in a seal age is a segment of its own, which no merge writes again."""
MEMORY_MB_MAX = 400.0


def verdicts_of(bill: Bill, *, range_bytes_min: int = RANGE_BYTES_MIN) -> list[Verdict]:
    """One workload. `range_bytes_min`: of a slice, its part of it."""
    further = bill.classes - 1
    entry_kib_max = ENTRY_KIB_MAX * max(1.0, bill.topics / ENTRY_TOPICS_MAX)
    found = [
        Verdict(
            f"PUTs a GiB for data and ledger, {bill.classes} TTL classes",
            bill.data_and_ledger,
            DATA_AND_LEDGER_MAX + PER_CLASS_MAX * further,
        ),
        Verdict("PUTs a GiB for state and checkpoints", bill.state_and_checkpoints, STATE_AND_CHECKPOINTS_MAX),
        Verdict("PUTs a GiB, all, merging and indexing too", bill.all_puts, ALL_MAX + ALL_PER_CLASS_MAX * further),
        Verdict("oldest acknowledged message outside the bucket", bill.oldest_ms / 1_000, AGE_S_MAX, "s"),
        Verdict("largest ledger entry", bill.largest_entry_bytes / KIB, entry_kib_max, "KiB"),
        Verdict("checkpoints against messages", 100 * bill.checkpoint_part, CHECKPOINT_PERCENT_MAX, "%"),
        Verdict("times a record was written, merges apart", bill.sealed_per_record, 1.0),
        Verdict("topics of 1 % or more", len(bill.reads), 1, at_least=True),
    ]
    if bill.reads:
        found += [
            Verdict(
                f"records of such a topic in ranges below {range_bytes_min // KIB} KiB, the most",
                max(100 * read.small_part(range_bytes_min) for read in bill.reads.values()),
                SMALL_PERCENT_MAX,
                "%",
            ),
            Verdict(
                "bytes read of such a topic for each that it stores, the most",
                max(read.read_per_byte for read in bill.reads.values()),
                READ_PER_BYTE_MAX,
            ),
        ]
    if bill.expires:
        found.append(Verdict("packs that died whole by TTL", bill.expired_packs, 1, at_least=True))
    return found


def verdicts_of_shapes(bills: Sequence[Bill]) -> list[Verdict]:
    """The same traffic of other numbers of topics and queues costs about as much."""
    most, least = max(bills, key=lambda bill: bill.all_puts), min(bills, key=lambda bill: bill.all_puts)
    return [
        Verdict(f"PUTs of {most.shape} to those of {least.shape}", most.all_puts / least.all_puts, SHAPES_RATIO_MAX)
    ]


def verdicts_of_classes(one: Bill, several: Bill) -> list[Verdict]:
    """A further TTL class costs its packs, and merges rewrite no more than without a TTL."""
    further = several.classes - one.classes
    return [
        Verdict(
            "PUTs a GiB more for data and ledger, for each further TTL class",
            (several.data_and_ledger - one.data_and_ledger) / further,
            PER_CLASS_MAX,
        ),
        Verdict(
            "bytes that merges wrote, to those without a TTL",
            several.merged_part / one.merged_part if one.merged_part else 0.0,
            1.0,
        ),
    ]


def verdicts_of_days(figures: Mapping[str, float | int | str], *, resident_mb: float) -> list[Verdict]:
    """Days of ledger, catalog and checkpoints (`synthetic_packs.py`)."""
    return [
        Verdict("largest ledger entry", float(figures["largest_entry_kib"]), ENTRY_KIB_MAX, "KiB"),
        Verdict("checkpoints against messages", float(figures["checkpoint_part_percent"]), CHECKPOINT_PERCENT_MAX, "%"),
        Verdict("resident memory", resident_mb, MEMORY_MB_MAX, "MB"),
    ]
