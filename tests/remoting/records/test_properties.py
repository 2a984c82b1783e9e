"""Property texts: as the decoder of the official client reads them, at every odd spot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import PropertiesTooLargeError
from thermocline.remoting.records.properties import (
    PropertyName,
    decode_properties,
    encode_properties,
    find_property,
    without_property,
)

NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=10)
PROPERTIES = st.dictionaries(NAMES, NAMES, max_size=8)

# Texts of which every piece is likely to be odd.
ODD_TEXTS = st.lists(st.sampled_from(["a", "b", "ab", "\x01", "\x02"]), max_size=14).map("".join)


@given(properties=PROPERTIES)
def test_round_trip(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    for name, value in properties.items():
        assert find_property(text, name.encode()) == value.encode()


@given(text=ODD_TEXTS, name=st.sampled_from(["a", "b", "ab"]))
def test_finding_one_agrees_with_decoding_all(text: str, name: str) -> None:
    expected = decode_properties(text).get(name)
    found = find_property(text.encode(), name.encode())
    assert found == (None if expected is None else expected.encode())


@given(text=ODD_TEXTS, name=st.sampled_from(["a", "b", "ab"]))
def test_removing_one_keeps_the_others(text: str, name: str) -> None:
    expected = {other: value for other, value in decode_properties(text).items() if other != name}
    assert decode_properties(without_property(text.encode(), name.encode())) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\x02b\x01x\x02", {"b": "x"}),
        (b"\x01b\x02", {}),
        (b"abc\x02", {}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01gr\xc3\xbcn\x02", {"a": "grün"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_odd_texts(text: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected


def test_bytes_of_a_text() -> None:
    assert (
        encode_properties({PropertyName.TAGS: "a", PropertyName.WAIT_STORE: "true"}) == b"TAGS\x01a\x02WAIT\x01true\x02"
    )


def test_too_long() -> None:
    encode_properties({"n": "v" * 32_764})
    with pytest.raises(PropertiesTooLargeError):
        encode_properties({"n": "v" * 32_765})
