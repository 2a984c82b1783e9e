"""Java's string hash, against values of a real JVM and against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.string_hash import java_string_hash, tags_code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("T0", 2652),
        ("hello", 99_162_322),
        ("TagA", 2_598_919),
        ("polygenelubricants", -(2**31)),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_known_values(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@given(text=st.text(max_size=700))
def test_definition(text: str) -> None:
    data = text.encode("utf-16-be", "surrogatepass")
    expected = 0
    for position in range(0, len(data), 2):
        expected = expected * 31 + int.from_bytes(data[position : position + 2], "big") & 0xFFFF_FFFF
    assert java_string_hash(text) & 0xFFFF_FFFF == expected
    assert -(2**31) <= java_string_hash(text) < 2**31


def test_tags_code() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("T0") == 2652
