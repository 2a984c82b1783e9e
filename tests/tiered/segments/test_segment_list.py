"""A topic's segments packed: they are what a tuple of them would be, at an eighth of its memory.

Covers `tiered/segments/segment_block.py`.
"""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.year_of_history import made_segments
from tests.tiered.ledger_data import KEYS, make_entry
from thermocline.tiered.catalog.catalog import Catalog, TopicEntry
from thermocline.tiered.catalog.live_names import LiveNames
from thermocline.tiered.objects.errors import SegmentFormatError
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import QueueRun, SegmentId
from thermocline.tiered.segments.segment_list import (
    BLOCK_SEGMENTS,
    LOOSE_MAX,
    NO_SEGMENTS,
    SMALL_BLOCKS_MAX,
    SegmentList,
    decode_catalog_value,
    encode_catalog_value,
)

longs = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
ids = st.builds(SegmentId, st.integers(0, 10**10 - 1), st.integers(0, 10**10 - 1)).map(str)
runs = st.lists(st.builds(QueueRun, *[longs] * 9), min_size=1, max_size=6).map(RunRows.of)
coarse = st.lists(st.builds(CoarseFrame, *[longs] * 5), max_size=6).map(CoarseRows.of)


class OfTopic(msgspec.Struct):
    """As a checkpoint has it."""

    segments: SegmentList


encoder = msgspec.json.Encoder(enc_hook=encode_catalog_value)
decoder = msgspec.json.Decoder(OfTopic, dec_hook=decode_catalog_value)


@st.composite
def segment(draw: st.DrawFn) -> SegmentEntry:
    """Any numbers, and names of objects with the segment's id in them or not."""
    entry = make_entry(SegmentId(1, 1))
    segment_id = draw(ids)
    parts = {
        name: msgspec.structs.replace(
            entry.log,
            key=draw(names) + draw(st.sampled_from([segment_id, "", segment_id * 2])) + draw(names),
            start=draw(longs),
            end=draw(longs),
            footer_start=draw(longs),
            crc32=draw(longs),
        )
        for name in ("log", "cq", "idx")
    }
    fields = ("incarnation", "record_count", "raw_bytes", "key_count", "bloom_page_bytes", "bloom_page_count")
    numbers = {name: draw(longs) for name in (*fields, "created_ms")}
    return msgspec.structs.replace(
        entry, segment_id=segment_id, topic=draw(names), runs=draw(runs), coarse=draw(coarse), **parts, **numbers
    )


@settings(deadline=None, max_examples=25)
@given(entries=st.lists(segment(), min_size=LOOSE_MAX, max_size=LOOSE_MAX + 3))
def test_any_segments_come_back(entries: list[SegmentEntry]) -> None:
    """Packed, pickled and by JSON, which is that of a plain list of them."""
    packed = SegmentList.of(entries)
    assert list(packed) == entries
    assert [packed[row] for row in range(-len(entries), len(entries))] == entries * 2
    assert packed == tuple(entries) == packed
    assert packed[3:5] == tuple(entries[3:5])
    assert pickle.loads(pickle.dumps(packed)) == packed
    text = encoder.encode(OfTopic(packed))
    assert text == encoder.encode({"segments": entries})
    assert decoder.decode(text).segments == packed


@pytest.mark.parametrize(
    "damage",
    [
        {"segment_id": 5},
        {"segment_id": "none"},
        {"runs": []},
        {"runs": [[1, 2]]},
        {"runs": [[0, 0, 10, 1, 2, 0, 1, 100, "200"]]},
        {"runs": [[0, 0, 10, 1, 2, 0, 1, 100, 1 << 63]]},
        {"coarse": 3},
        {"coarse": [[0, 0, 8, 0, 1.5]]},
        {"log": ["key", 0, 1]},
        {"log": [7, 0, 1, 2, 3]},
        {"log": ["a\0b", 0, 1, 2, 3]},
        {"record_count": 1.5},
        {"created_ms": None},
    ],
)
def test_invalid_segments_are_refused(damage: dict[str, object]) -> None:
    whole = msgspec.json.decode(encoder.encode(make_entry(SegmentId(1, 2))))
    for count in (1, LOOSE_MAX):
        text = msgspec.json.encode({"segments": [whole | {"later": 1}] * count})
        assert list(decoder.decode(text).segments) == [make_entry(SegmentId(1, 2))] * count
    with pytest.raises((msgspec.DecodeError, SegmentFormatError)):
        decoder.decode(msgspec.json.encode({"segments": [whole] * LOOSE_MAX + [whole | damage]}))
    for name in damage:
        less = {key: whole[key] for key in whole.keys() - {name}}
        for others in ([], [whole] * LOOSE_MAX):
            with pytest.raises(msgspec.DecodeError):
                decoder.decode(msgspec.json.encode({"segments": [*others, less]}))


def check(packed: SegmentList, plain: Sequence[SegmentEntry], random: Random) -> None:
    """Whatever is asked, the answer is that of a look at each."""
    assert len(packed) == len(plain)
    assert packed.record_count == sum(each.record_count for each in plain)
    assert packed.raw_bytes == sum(each.raw_bytes for each in plain)
    assert packed.stored_bytes == sum(each.stored_bytes for each in plain)
    assert packed.end_physical_offset == max((each.end_physical_offset for each in plain), default=0)
    assert packed.min_physical_offset == min((each.min_physical_offset for each in plain), default=None)
    assert packed.newest_store_ms == max((each.max_store_ms for each in plain), default=0)
    assert packed.first_newest_ms == min((each.max_store_ms for each in plain), default=None)
    assert dict(packed.sizes()) == {each.segment_id: each.stored_bytes for each in plain}
    bounds: dict[int, list[int]] = {}
    for run in (run for each in plain for run in each.runs):
        bounds.setdefault(run.queue_id, []).extend((run.start_offset, run.end_offset))
    assert packed.queue_bounds() == {queue_id: (min(each), max(each)) for queue_id, each in bounds.items()}
    numbers, rows = packed.run_numbers()
    assert [(plain[row], *number) for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)] == [
        (each, *msgspec.structs.astuple(run)) for each in plain for run in each.runs
    ]
    if not plain:
        return
    cut_ms = random.choice(plain).max_store_ms + random.randint(0, 1)
    assert list(packed.stored_before(cut_ms)) == [each for each in plain if each.max_store_ms < cut_ms]
    assert packed.ids_stored_before(cut_ms) == [each.segment_id for each in packed.stored_before(cut_ms)]
    around = [each for each in plain if each.min_store_ms < cut_ms <= each.max_store_ms]
    assert list(packed.stored_around(cut_ms)) == around
    start = random.choice(plain).min_physical_offset
    end = start + random.choice((1, 1 << 28, 1 << 33))
    between = [each for each in plain if each.min_physical_offset < end and each.end_physical_offset > start]
    assert list(packed.between(start, end)) == between
    items, columns = packed.columns_between(start, end)
    assert items == between
    assert columns.T.tolist() == [
        [each.min_physical_offset, each.end_physical_offset, each.record_count] for each in between
    ]
    one = random.choice(plain)
    assert packed.find(one.segment_id) == one
    assert packed.has(one.segment_id)
    wanted = (one.runs[3].queue_id, one.runs[3].start_offset + 5, one.runs[3].start_offset + 6)
    assert (one.runs[3].queue_id, one.runs[3].start_offset, one.runs[3].end_offset) in packed.runs_near([wanted])


@pytest.mark.parametrize("seed", range(3))
def test_it_answers_as_a_tuple_would(seed: int) -> None:
    """Over arrivals of one and of many, and over what goes, from the front and from anywhere."""
    random = Random(seed)
    waiting = made_segments("orders", count=700, seed=seed)
    packed, plain = NO_SEGMENTS, list[SegmentEntry]()
    while waiting:
        kind = random.choice(("one", "one", "one", "many", "front", "any"))
        before = packed
        if kind in ("one", "many"):
            count = 1 if kind == "one" else random.randint(2, 150)
            coming, waiting = waiting[:count], waiting[count:]
            packed = packed.with_more(coming)
            plain += coming
        elif plain:
            count = random.randint(1, min(len(plain), 40))
            gone = plain[:count] if kind == "front" else random.sample(plain, count)
            packed, found = packed.without([*(each.segment_id for each in gone), str(SegmentId(9, 9)), "none"])
            plain = [each for each in plain if each not in gone]
            assert sorted(each.segment_id for each in found) == sorted(each.segment_id for each in gone)
            assert not any(packed.has(each.segment_id) for each in gone)
        if random.random() < 0.2:
            check(packed, plain, random)
        assert before.without(())[0] is before
    check(packed, plain, random)
    assert list(packed) == plain
    assert packed.without([each.segment_id for each in plain])[0] is NO_SEGMENTS


def test_one_is_taken_by_its_number_from_every_part() -> None:
    """Over two blocks and loose ones; from either end, no further."""
    plain = made_segments("orders", count=2 * BLOCK_SEGMENTS + LOOSE_MAX - 1, seed=1)
    loose = plain[2 * BLOCK_SEGMENTS :]
    packed = SegmentList.of(plain[: 2 * BLOCK_SEGMENTS]).with_more(loose)
    assert [len(part) for part in packed._parts] == [BLOCK_SEGMENTS, BLOCK_SEGMENTS, len(loose)]
    count = len(plain)
    for border in (0, BLOCK_SEGMENTS, 2 * BLOCK_SEGMENTS, count):
        for index in range(max(0, border - 2), min(count, border + 2)):
            assert packed[index] == packed[index - count] == plain[index]
        assert packed[border - 1 : border + 2] == tuple(plain[border - 1 : border + 2])
    for index in (count, -count - 1):
        with pytest.raises(IndexError):
            packed[index]
    assert decoder.decode(encoder.encode(OfTopic(packed))).segments == packed


def test_equality_is_that_of_the_segments() -> None:
    plain = made_segments("orders", count=LOOSE_MAX + 2, seed=1)
    packed, apart = SegmentList.of(plain), NO_SEGMENTS
    for each in plain:
        apart = apart.with_more([each])
    assert packed == apart == tuple(plain)
    assert hash(packed) == hash(apart)
    assert packed != SegmentList.of(plain[:-1]) != packed
    assert packed != SegmentList.of([*plain[:-1], plain[0]])
    assert packed != plain, "a list is none"


def test_small_blocks_become_a_large_one() -> None:
    plain = made_segments("orders", count=LOOSE_MAX * (SMALL_BLOCKS_MAX + 1), seed=1)
    packed = NO_SEGMENTS
    sizes = []
    for start in range(0, len(plain), LOOSE_MAX):
        packed = packed.with_more(plain[start : start + LOOSE_MAX])
        sizes.append([len(part) for part in packed._parts])
    assert sizes[:2] == [[LOOSE_MAX], [LOOSE_MAX] * 2]
    assert sizes[-2:] == [[LOOSE_MAX] * SMALL_BLOCKS_MAX, [BLOCK_SEGMENTS, len(plain) - BLOCK_SEGMENTS]]
    assert list(packed) == plain
    assert [len(part) for part in packed.with_more(plain[:1])._parts] == [*sizes[-1], 1]


def test_nothing_that_is_not_there_is_taken_away() -> None:
    packed = SegmentList.of(made_segments("orders", count=40, seed=1))
    assert packed.without([str(SegmentId(9, 9)), "no id"]) == (packed, [])
    assert packed.find("no id") is None


def test_a_segment_takes_half_a_kibibyte() -> None:
    """Eight queues, two coarse frames each, no two numbers alike; as objects 2.7 KiB."""
    count = 8 * BLOCK_SEGMENTS
    text = encoder.encode({"segments": made_segments("orders", count=count, seed=1)})
    tracemalloc.start()
    packed = decoder.decode(text).segments
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(packed) == count
    assert held_bytes / count < 512
    assert packed.memory_bytes / count < 400


def test_names_of_objects_are_asked_one_by_one() -> None:
    """By the segment's own name, by another's, and of what has gone."""
    own = [make_entry(SegmentId(1, number), start=10 * number) for number in range(LOOSE_MAX)]
    merged_key = KEYS.merged_segment("orders", SegmentId(1, 50))
    merged = msgspec.structs.replace(
        make_entry(SegmentId(1, 50), start=5_000),
        **{name: msgspec.structs.replace(own[0].log, key=merged_key) for name in ("log", "cq", "idx")},
    )
    odd = msgspec.structs.replace(
        make_entry(SegmentId(1, 51), start=6_000), idx=msgspec.structs.replace(own[0].idx, key="elsewhere/index")
    )
    for segments in ((*own, merged, odd), (merged, odd)):
        topic = TopicEntry(topic="orders", incarnation=1, segments=SegmentList.of(segments))
        catalog = msgspec.structs.replace(Catalog.empty(), topics={"orders": topic})
        live = LiveNames(catalog)
        assert all(key in live for key in catalog.live_keys())
        for key in (*KEYS.segment("orders", SegmentId(2, 1)), *KEYS.segment("others", SegmentId(1, 1)), "x", "a/b/c"):
            assert key not in live
        assert KEYS.segment("orders", SegmentId(1, 50))[0] not in live, "its parts are in one object"
        staying, _ = topic.segments.without([odd.segment_id])
        later = LiveNames(
            msgspec.structs.replace(catalog, topics={"orders": msgspec.structs.replace(topic, segments=staying)})
        )
        assert "elsewhere/index" in live
        assert "elsewhere/index" not in later
