"""Obstacles: options after whose load no offset has everything still to be consumed behind it, and nothing else.

Options that only choose columns, sizes, access or the beginning are none. Whatever is not known here is taken for one.
"""

from __future__ import annotations

from collections.abc import Mapping

HARMLESS = frozenset(
    name.lower()
    for name in (
        *("path", "paths", "topic", "subscribe", "columns", "includeProperties", "decompressBody"),
        *("bodyFormat", "bodySchema", "bodyMessage"),
        *("maxPartitionBytes", "fetchBytes", "rowsPerBatch", "metrics"),
        *("startingOffsets", "startingTimestamp", "snapshotVersion", "snapshotPin"),
    )
)
HARMLESS_PREFIXES = ("s3.", "fs.s3a.")
HARMLESS_VALUES = {
    "endingoffsets": "latest",
    "tags": "*",
    "failondataloss": "true",
    "oncorruptframe": "fail",
}
OF_A_TIME = "it begins at a time behind the group's position"
OF_A_CONDITION = "it takes messages of a condition only"
SENTENCES = {
    "endingoffsets": "it ends at chosen offsets",
    "endingtimestamp": "it ends at a time",
    "snapshottimestamp": "it judges time to live at another moment",
    "tags": "it takes messages with some tags only",
    "keys": "it takes messages with some keys only",
    "queues": "it takes some queues only",
    "where": OF_A_CONDITION,
    "failondataloss": "it tolerates missing messages",
    "oncorruptframe": "it skips damaged frames",
}


def obstacles_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """What stands against a hand-off after a load with these options, a few words each."""
    found: list[str] = []
    for name, value in sorted(options.items()):
        lowered = name.lower()
        is_harmless = lowered in HARMLESS or lowered.startswith(HARMLESS_PREFIXES)
        if is_harmless or HARMLESS_VALUES.get(lowered) == value.strip().lower():
            continue
        found.append(SENTENCES.get(lowered, f"it has the option {name}"))
    return tuple(found)
