"""Messages by key: whole words of KEYS, exactly."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.spark.sample_records import record
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder, RowSelection
from thermocline.spark.decoding.key_words import rows_with_keys, words_of

COLUMN = pa.array(["a b", None, "ab", "", "b  c", "a,b"], pa.string())


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ([{"a"}], [0]),
        ([{"b"}], [0, 4]),
        ([{"a"}, {"b"}], [0]),
        ([{"a", "c"}, {"b"}], [0, 4]),
        ([{"a,b", "ab"}], [2, 5]),
        ([{"missing"}], []),
        ([set()], []),
    ],
)
def test_each_set_needs_one_of_its_keys(wanted: list[set[str]], rows: list[int]) -> None:
    mask = rows_with_keys(COLUMN, [frozenset(keys) for keys in wanted])
    assert mask.nonzero()[0].tolist() == rows


def test_no_rows_at_all() -> None:
    assert rows_with_keys(pa.array([], pa.string()), [frozenset({"a"})]).tolist() == []


def test_empty_words_are_no_keys() -> None:
    assert words_of(" a  b ") == ["a", "b"]


def test_the_decoder_selects_by_key_and_tag_together() -> None:
    texts = [b"KEYS\x01k1 k2\x02TAGS\x01A", b"KEYS\x01k2\x02TAGS\x01B", b"TAGS\x01A", b"KEYS\x01k12\x02TAGS\x01A"]
    records = b"".join(record(number, properties=text) for number, text in enumerate(texts))
    decoder = ArrowDecoder(("queueOffset",))

    def offsets(**selection: object) -> list[int]:
        return list(decoder.decode(records, RowSelection(**selection)).column(0).to_pylist())  # type: ignore[arg-type]

    assert offsets(keys=(frozenset({"k2"}),)) == [0, 1]
    assert offsets(keys=(frozenset({"k2"}),), tags=frozenset({"B"})) == [1]
    assert offsets(keys=(frozenset({"k1"}), frozenset({"k2"}))) == [0]
