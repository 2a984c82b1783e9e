"""Listing check: compares the objects listed with those named by the catalog. Reads only a listing.

    named and not listed, or of another size     a finding
    listed and not named
        being written, or about to be deleted    nothing (`ScrubView.is_on_its_way`)
        an orphan that the collector deletes     garbage, counted; a finding for the writer, which has just collected
        anything else                            a finding: no collection will delete it

A listing may lag behind, so each result is checked once more before it is reported (`scrubber.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.doctor import is_probe
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.index_format import IndexEntry
from thermocline.tiered.ledger import ballot_of, proposal_of
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.scrub.view import ScrubView
from thermocline.tiered.segments import BrokerKeys, PartLocator, SegmentEntry, segment_id_of

_KINDS = {
    ".log": ObjectKind.LOG,
    ".cq": ObjectKind.COLUMNS,
    ".idx": ObjectKind.KEY_INDEX,
    ".pack": ObjectKind.PACK,
    ".index": ObjectKind.INDEX,
}


@dataclass(slots=True)
class ListingState:
    """The result. `garbage`: key -> size of objects that the collector will delete. `missing_old`: missing objects that
    only versions before the newest name: they are not healed; objects of replaced segments are among them."""

    findings: list[Finding] = field(default_factory=list)
    missing_old: list[str] = field(default_factory=list)
    garbage: dict[str, int] = field(default_factory=dict)


def parts_of(segment: SegmentEntry) -> tuple[tuple[ObjectKind, PartLocator], ...]:
    """The three parts of a segment and their kinds."""
    return (
        (ObjectKind.LOG, segment.log),
        (ObjectKind.COLUMNS, segment.cq),
        (ObjectKind.KEY_INDEX, segment.idx),
    )


def check_listing(
    listed: Mapping[str, int],
    *,
    catalog: Catalog,
    keys: BrokerKeys,
    ledger_named: set[str],
    view: ScrubView,
) -> ListingState:
    """Compare a listing of all of the broker's prefix with a catalog that is not older."""
    state = ListingState()
    named = ledger_named | catalog.live_keys()
    for topic in catalog.topics.values():
        for segment in topic.segments:
            state.findings += check_sizes(segment, listed)
    for pack in catalog.packs.values():
        state.findings += check_pack_size(pack, listed)
    for index in catalog.indexes.values():
        state.findings += check_index_size(index, listed)
    for gone in catalog.removed:
        if gone.removed_in > catalog.readable_from:
            named.update(gone.keys)
            state.missing_old += [key for key in gone.keys if key not in listed]
    for key in sorted(listed.keys() - named):
        kind = _kind_of(key, keys)
        if kind is None or view.is_on_its_way(key):
            continue
        if _is_collected(key, keys, catalog) and not (view.is_writer and segment_id_of(key) is not None):
            state.garbage[key] = listed[key]
        elif not _may_be_new(key, keys, catalog):
            state.findings.append(Finding(kind=kind, problem=Problem.EXTRA, key=key))
    return state


def check_sizes(segment: SegmentEntry, listed: Mapping[str, int]) -> list[Finding]:
    """Whether the parts of a segment exist and have the right sizes."""
    findings: list[Finding] = []
    for kind, part in parts_of(segment):
        # Parts of one object are stored end to end: it ends with the last of them.
        end = max(each.end for _, each in parts_of(segment) if each.key == part.key)
        findings += _size_finding(kind, part.key, end, listed, topic=segment.topic, segment_id=segment.segment_id)
    return findings


def check_pack_size(pack: PackEntry, listed: Mapping[str, int]) -> list[Finding]:
    """Whether a pack exists and has the right size."""
    return _size_finding(ObjectKind.PACK, pack.key, pack.object_bytes, listed, segment_id=pack.pack_id)


def check_index_size(index: IndexEntry, listed: Mapping[str, int]) -> list[Finding]:
    """Whether an index object exists and has the right size."""
    return _size_finding(ObjectKind.INDEX, index.key, index.object_bytes, listed, segment_id=index.index_id)


def _size_finding(
    kind: ObjectKind, key: str, expected: int, listed: Mapping[str, int], *, segment_id: str, topic: str = ""
) -> list[Finding]:
    size_bytes = listed.get(key)
    if size_bytes == expected:
        return []
    problem, detail = Problem.MISSING, ""
    if size_bytes is not None:
        problem, detail = Problem.SIZE, f"{size_bytes} bytes instead of {expected}"
    return [Finding(kind=kind, problem=problem, key=key, detail=detail, topic=topic, segment_id=segment_id)]


def _kind_of(key: str, keys: BrokerKeys) -> ObjectKind | None:
    """The kind of an object by its name; None for objects that the scrubber does not check here."""
    if keys.state_of(key) is not None:
        return None  # state_check.py
    if ballot_of(key, keys) is not None or proposal_of(key, keys) is not None:
        return None  # fencing_check.py
    if is_probe(key, keys.doctor_prefix):
        return None  # of a running or killed store doctor: the next run deletes it
    if keys.ledger_version(key) is not None:
        return ObjectKind.LEDGER_ENTRY
    part = keys.checkpoint_part(key)
    if part is not None:
        return ObjectKind.CHECKPOINT_HEAD if part[1] is None else ObjectKind.CHECKPOINT_BUCKET
    if key == keys.head_hint:
        return ObjectKind.HEAD_HINT
    if key.startswith((keys.topics_prefix, keys.packs_prefix, keys.indexes_prefix)) and segment_id_of(key) is not None:
        return _KINDS.get(f".{key.rpartition('.')[2]}", ObjectKind.OTHER)
    if key.startswith(keys.pins_prefix) and key.endswith(".json"):
        return None  # checked by itself, as every pin is
    return ObjectKind.OTHER


def _is_collected(key: str, keys: BrokerKeys, catalog: Catalog) -> bool:
    """Whether the collector deletes an unreferenced object of this name (`garbage.py`)."""
    segment_id = segment_id_of(key)
    if segment_id is not None:
        return segment_id.epoch < catalog.epoch
    version = keys.ledger_version(key)
    if version is not None:
        return version < catalog.readable_from
    part = keys.checkpoint_part(key)
    return part is not None and part[0] <= catalog.checkpoint_version


def _may_be_new(key: str, keys: BrokerKeys, catalog: Catalog) -> bool:
    """Whether it is the entry being committed, or of a checkpoint that no entry names yet."""
    if keys.ledger_version(key) == catalog.version + 1:
        return True
    part = keys.checkpoint_part(key)
    return part is not None and catalog.checkpoint_version < part[0] <= catalog.version
