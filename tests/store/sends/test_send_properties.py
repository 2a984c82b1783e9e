"""Property rules of sends: plain properties, and those that a broker adds, replaces and removes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.send_frames import properties_text
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.string_hash import tags_code
from thermocline.store.sends.send_properties import (
    REMOVED_PROPERTIES,
    TAGS_MARK,
    TagsCodes,
    broker_suffix,
    is_plain,
    needs_routing,
    property_of,
    split_unique_key,
    stored_text,
    waits_for_store,
)

SUFFIX = broker_suffix(region_id="r", trace_on=False, cluster_name="c")

names = st.sampled_from(
    ["TAGS", "XTAGS", "KEYS", "DELAY", "DELAYED", "TIMER_DELAY_SEC", "INNER_NUM", "POP_CK", "POP_CK_OFFSET", "CLUSTER"]
) | st.sampled_from(["_SYS_MSG_PRIORITY_", "PRIORITY"])
texts = st.one_of(
    st.lists(st.tuples(names, st.text(st.sampled_from("aDELAYTIMER_TAGS\x01"), max_size=8)), max_size=5).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    ),
    st.text(st.sampled_from("TAGSab\x01\x02"), max_size=20),
)


def test_the_suffix_is_that_of_rocketmq() -> None:
    assert SUFFIX == b"MSG_REGION\x01r\x02TRACE_ON\x01false\x02CLUSTER\x01c\x02"


@given(texts)
def test_one_property_is_found_as_decoding_all_finds_it(text: str) -> None:
    """The last of several counts; an empty one does not."""
    assert property_of(text, TAGS_MARK) == decode_properties(text).get("TAGS", "")


keyed_texts = st.tuples(
    texts, st.sampled_from(["", "UNIQ_KEY\x01", "UNIQ_KEY\x01k\x02", "aUNIQ_KEY\x01k\x02"]), texts
).map("".join)


@given(keyed_texts)
def test_the_unique_key_and_the_text_behind_it(text: str) -> None:
    key, end = split_unique_key(text)
    assert key == decode_properties(text).get("UNIQ_KEY", "")
    assert not end or (end.startswith("\x02") and text.endswith(f"UNIQ_KEY\x01{key}{end}"))


@given(st.lists(keyed_texts, min_size=1, max_size=20))
def test_a_remembered_tags_code_is_that_of_the_text(several: list[str]) -> None:
    codes = TagsCodes()
    for text in several * 2:
        end = split_unique_key(text)[1]
        remembered = codes.remembered(end)
        expected = tags_code(decode_properties(text).get("TAGS", ""))
        assert (codes.find(text, end) if remembered is None else remembered) == expected


def test_tags_codes_are_remembered_by_the_end_of_the_text_within_a_bound() -> None:
    codes = TagsCodes()
    end = "\x02WAIT\x01true\x02TAGS\x01TagA"
    assert codes.find(f"KEYS\x01a\x02UNIQ_KEY\x01k{end}", end) == codes.remembered(end) == tags_code("TagA")
    for number in range(codes.ENDS_MAX):
        other = f"\x02TAGS\x01{number}"
        codes.find(f"UNIQ_KEY\x01k{other}", other)
        assert codes.remembered(other) == tags_code(str(number))
    assert codes.remembered(end) is None, "forgotten"
    long = "\x02TAGS\x01" + "t" * codes.END_LENGTH_MAX
    codes.find(f"UNIQ_KEY\x01k{long}", long)
    assert codes.remembered(long) is None


@given(texts)
def test_plain_means_that_nothing_in_it_matters(text: str) -> None:
    properties = decode_properties(text)
    matters = needs_routing(properties) or not REMOVED_PROPERTIES.isdisjoint(properties)
    assert is_plain(text, False) is not matters


@pytest.mark.parametrize(
    ("wait", "waits"), [("true", True), ("TRUE", True), ("false", False), ("no", False), (None, True)]
)
def test_wait(wait: str | None, waits: bool) -> None:
    properties = {} if wait is None else {"WAIT": wait}
    assert waits_for_store(properties) is waits
    assert is_plain(properties_text(properties), True) is waits
    assert is_plain(properties_text(properties), False)


@given(texts)
def test_plain_properties_are_stored_unchanged(text: str) -> None:
    """Unless the broker has something to replace in it."""
    properties = decode_properties(text)
    stored = stored_text(text, dict(properties), suffix=SUFFIX)
    assert stored.endswith(SUFFIX)
    if REMOVED_PROPERTIES.isdisjoint(properties):
        assert stored.startswith(text.encode())
    expected = {name: value for name, value in properties.items() if name not in REMOVED_PROPERTIES}
    assert decode_properties(stored) == expected | decode_properties(SUFFIX)


def test_changed_properties_are_stored_as_changed() -> None:
    stored = stored_text("a\x011\x02b\x012\x02", {"a": "1", "c": "3"}, suffix=SUFFIX)
    assert stored == b"a\x011\x02c\x013\x02" + SUFFIX
