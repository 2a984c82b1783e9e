"""Index keys: hashes of many keys at once are Java's of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline.remoting.string_hash import java_string_hash
from thermocline.store.index.index_keys import KeyCollector, key_hash, positive_hashes, query_text

word = st.text(st.characters(exclude_characters="\0\1\2 ", exclude_categories=("Cs",)), min_size=1, max_size=30)


def collect(*records: tuple[str, bytes]) -> KeyCollector:
    collector = KeyCollector()
    for number, (topic, properties) in enumerate(records):
        collector.add(topic.encode(), properties, record_number=number)
    return collector


def test_hash_is_javas_absolute_value() -> None:
    assert key_hash("topic#key") == abs(java_string_hash("topic#key"))
    assert java_string_hash("polygenelubricants") == -(1 << 31)
    assert key_hash("polygenelubricants") == 0


def test_keys_of_a_record_in_their_order() -> None:
    """As Apache RocketMQ 5.5 files them: unique id, each key, then the tag."""
    collector = collect(
        ("t", b"TAGS\x01red\x02KEYS\x01k1  k2\x02UNIQ_KEY\x01id\x02"), ("t", b""), ("u", b"TAGS\x01b\x02")
    )
    expected = ["t#id", "t#k1", "t#k2", "t#T#red", "u#T#b"]
    assert collector.hashes().tolist() == [key_hash(text) for text in expected]
    assert collector.record_numbers == [0, 0, 0, 0, 2]
    assert KeyCollector().hashes().tolist() == []


def test_odd_texts() -> None:
    """A name within a value, an empty value, a name twice: as `find_property` reads them."""
    for properties, keys in (
        (b"X\x01KEYS\x01no\x02", []),
        (b"KEYS\x01yes\x02X\x01KEYS\x01no\x02", ["yes"]),
        (b"KEYS\x01one\x02KEYS\x01two\x02", ["two"]),
        (b"KEYS\x01one\x02KEYS\x01\x02", ["one"]),
        (b"KEYS\x01open end", ["open", "end"]),
    ):
        assert collect(("t", properties)).hashes().tolist() == [key_hash(f"t#{key}") for key in keys], properties


def test_queries_name_keys_as_they_are_filed() -> None:
    assert query_text("t", "k", is_tag=False) == "t#k"
    assert query_text("t", "red", is_tag=True) == "t#T#red"


def test_the_least_hash_has_no_absolute_value() -> None:
    least = np.array([java_string_hash("polygenelubricants")], np.int64).astype(np.uint32)
    assert positive_hashes(least).tolist() == [0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(word, word), min_size=1, max_size=20))
def test_many_at_once_are_each_by_itself(keys: list[tuple[str, str]]) -> None:
    """Of any lengths, in any script."""
    collector = collect(*[(topic, f"KEYS\x01{key}\x02".encode()) for topic, key in keys])
    assert collector.hashes().tolist() == [key_hash(f"{topic}#{key}") for topic, key in keys]
