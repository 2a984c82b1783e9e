"""Property texts, regular and not, to columns: by the rules of the official decoder."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.sample_records import record
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.records.record_heads import read_heads
from thermocline.spark.decoding.arrow_gather import gather_pieces
from thermocline.spark.decoding.property_columns import read_properties

CASES: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"TAGS\x01A\x02", {"TAGS": "A"}),
    (b"TAGS\x01A", {"TAGS": "A"}),
    (b"KEYS\x01k1 k2\x02TAGS\x01A\x02", {"KEYS": "k1 k2", "TAGS": "A"}),
    (b"TAGS\x01A\x02TAGS\x01B\x02", {"TAGS": "B"}),
    (b"TAGS\x01A\x02x\x01y\x02TAGS\x01\x02", {"TAGS": "A", "x": "y"}),
    (b"\x01A\x02TAGS\x01\x02", {}),
    (b"a-name-longer-than-eight\x01v\x02", {"a-name-longer-than-eight": "v"}),
    ("TAGS\x01标签\x02城市\x01上海\x02".encode(), {"TAGS": "标签", "城市": "上海"}),
]
IRREGULAR: list[tuple[bytes, dict[str, str]]] = [
    (b"TAGS\x01A\x01B\x02", {"TAGS": "A\x01B"}),
    (b"no separator\x02TAGS\x01A\x02", {"TAGS": "A"}),
    (b"\x02\x02TAGS\x01A\x02", {"TAGS": "A"}),
    (b"TAGS\x01a\x00b\x02", {"TAGS": "a\x00b"}),
    (b"TAGS\x01\xff\x02", {"TAGS": "\ufffd"}),
]


def columns_of(texts: list[bytes]) -> tuple[list[dict[str, str]], dict[str, list[Any]]]:
    records = b"".join(record(offset, b"", text) for offset, text in enumerate(texts))
    properties = read_properties(read_heads(records))
    names = ("TAGS", "KEYS", "UNIQ_KEY", "a-name-longer-than-eight", "a-name-longer-than-nine?")
    maps = [dict(pairs) for pairs in properties.maps().to_pylist()]
    return maps, {name: properties.column(name).to_pylist() for name in names}


@pytest.mark.parametrize("cases", [CASES, IRREGULAR, CASES + IRREGULAR, CASES[:1], []])
def test_rows_decode_alike_together_and_alone(cases: list[tuple[bytes, dict[str, str]]]) -> None:
    maps, columns = columns_of([text for text, _ in cases])
    assert maps == [expected for _, expected in cases]
    for name, values in columns.items():
        assert values == [expected.get(name) for _, expected in cases]


def test_the_codec_agrees_with_the_cases() -> None:
    for text, expected in CASES + IRREGULAR:
        assert decode_properties(text) == expected


def test_names_that_share_length_and_beginning_are_kept_apart() -> None:
    text = b"long-name-1\x01a\x02long-name-2\x01b\x02long-name-1\x01c\x02"
    assert columns_of([text, text])[0] == [{"long-name-1": "c", "long-name-2": "b"}] * 2


def test_a_row_of_very_many_properties_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows were compared as often as the longest had pairs: seconds for each batch with one such message."""
    calls: list[int] = []

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(1)
        return gather_pieces(*args, **named)

    monkeypatch.setattr("thermocline.spark.decoding.property_columns.gather_pieces", counted)
    names = [f"property-{number % 1_500:04}" for number in range(1_600)]
    long = "".join(f"{name}\x01{place}\x02" for place, name in enumerate(names)).encode()
    edges = ["".join(f"property-{n % (count - 1):04}\x01{n}\x02" for n in range(count)).encode() for count in (64, 65)]
    texts = [b"TAGS\x01A\x02", long, *edges, b"TAGS\x01A\x02TAGS\x01B\x02"]
    maps, _ = columns_of(texts)
    assert maps == [decode_properties(text) for text in texts]
    assert len(maps[1]) == 1_500
    assert maps[1]["property-0007"] == "1507"
    assert len(calls) < 200
