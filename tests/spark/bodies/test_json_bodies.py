"""JSON bodies against Spark's own from_json: equal rows for whatever bodies come, but for what the module names."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from thermocline.spark.bodies.body_columns import BodyColumns, BodyOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = """i INT, l BIGINT, b TINYINT, d DOUBLE, f FLOAT, m DECIMAL(9,2), s STRING, o BOOLEAN, y BINARY, t DATE,
         z TIMESTAMP, a ARRAY<INT>, n STRUCT<x: INT, w: ARRAY<STRUCT<v: STRING, u: DOUBLE>>>, p MAP<STRING, BIGINT>"""

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -7, 127, 128, 2**31 - 1, 2**31, -(2**63), 2**63, 10**30, 1.5, -0.25, 1e3, 12345678.905),
    *(1234567.885, 99999999.5, "", "text", "Köln ☃", "12", "NaN", "Infinity", "-INF", "7.25", "true", "eA==", "e?"),
    *("2026-01-31", "2026-02-30", "2026-01-31T10:11:12Z", "2026-01-31T10:11:12.123456+02:00", "2026-01-31 23:59:59"),
    *([], [1, 2, None], [1, "two"], ["x"], [[1]], {}, {"x": 1}, {"x": "one", "w": []}),
    *({"w": [{"v": "a", "u": 1}, {"v": 2, "u": "b"}, None]}, {"k": 1, "j": None}, {"k": "one", "j": 2}),
]
TEXTS = [
    *("{", "}", "nonsense", '{"i": 1', '{"i": 01}', '{"i": tru}', "null", "7", '"x"', "{}", ' {"i" : 1 } '),
    *('{"i": 1, "i": 2}', '{"unknown": {"deep": [1]}, "i": 3}', '{"s": "a\\u0000b"}', '{"I": 5}', '{"i": 1}\n'),
    *('{"d": 1e400}', '{"s": "a\nb"}', '{"l": 1.0}', '{"m": 1e2}', '{"m": "1.005"}', '{"m": "x"}', '{"p": {}}'),
    *('{"n": {"w": [1]}}', '{"n": {"w": "x", "x": 4}}', '{"n": {"w": [{"u": "NaN"}, {"u": true}], "x": 4}}'),
]


def is_alike(name: str, value: Any) -> bool:
    """Whether Spark is meant to make the same of it; see the module `json_bodies`."""
    if name == "s":
        return not isinstance(value, float) or abs(value) < 1e7
    if name in ("t", "z"):
        return not (isinstance(value, str) and value.isdecimal()) and value not in (2**63, -(2**63), 10**30)
    return not (name == "b" and value == 128)


KIND = pa.struct(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("b", pa.int8()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("o", pa.bool_()),
        ("y", pa.binary()),
        ("t", pa.date32()),
        ("z", pa.timestamp("us", "UTC")),
        ("a", pa.list_(pa.int32())),
        (
            "n",
            pa.struct([("x", pa.int32()), ("w", pa.list_(pa.struct([("v", pa.string()), ("u", pa.float64())])))]),
        ),
        ("p", pa.map_(pa.string(), pa.int64())),
    ]
)


def bodies(count: int) -> list[bytes]:
    random = Random(20)
    names = ["i", "l", "b", "d", "f", "m", "s", "o", "y", "t", "z", "a", "n", "p", "other"]
    made = [text.encode() for text in TEXTS]
    made += [json.dumps({name: value}).encode() for name in names for value in VALUES if is_alike(name, value)]
    for _ in range(count):
        chosen = random.sample(names, random.randrange(len(names)))
        drawn = {name: random.choice(VALUES) for name in chosen}
        alike = {name: value for name, value in drawn.items() if is_alike(name, value)}
        made.append(json.dumps(alike, ensure_ascii=False).encode())
    return made


def plain(value: Any) -> Any:
    """NaN equals NaN; a map is a dict."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def test_rows_equal_those_of_from_json(spark_session: SparkSession, case_count: Any) -> None:
    from pyspark.sql import functions as f

    made = bodies(case_count(quick=2_000, soak=50_000))
    source = spark_session.createDataFrame(pa.table({"value": pa.array(made, pa.binary())}))
    schema = f"{DDL}, _corrupt_record STRING"
    parsed = source.select(f.from_json(f.col("value").cast("string"), schema).alias("r")).select("r.*")
    expected = parsed.toArrow().to_pylist()
    body, corrupt = BodyColumns(BodyOptions(format="json", schema=DDL), KIND).parse(pa.array(made, pa.binary()))
    nothing = dict.fromkeys(KIND.names)
    wrong = []
    for text, ours, bad, theirs in zip(made, body.to_pylist(), corrupt.to_pylist(), expected, strict=True):
        is_bad = theirs.pop("_corrupt_record") is not None
        if plain(ours or nothing) != plain(theirs) or (bad is not None) != is_bad:
            wrong.append((text, ours, theirs, bad, is_bad))
        assert bad is None or (bad["value"] == text and bad["reason"])
    assert not wrong, f"{len(wrong)} of {len(made)}\n" + "\n".join(map(str, wrong[:20]))
    assert sum(one is not None for one in corrupt.to_pylist()) > len(made) // 4


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        ('{"i": 1, "s": 1.5}', {"i": 1, "s": "1.5"}, None),
        ('{"s": 12345678.5}', {"s": "12345678.5"}, None),
        ('{"s": {"a": [1, 2.25]}}', {"s": '{"a":[1,2.25]}'}, None),
        ('{"m": 2.345}', {"m": Decimal("2.35")}, None),
        ('{"y": "AP8="}', {"y": b"\x00\xff"}, None),
        ('{"t": "2026-01-31"}', {"t": date(2026, 1, 31)}, None),
        ('{"z": "2026-01-31T10:00:00+01:00"}', {"z": datetime(2026, 1, 31, 9, tzinfo=UTC)}, None),
        ('{"z": 86400}', {"z": datetime(1970, 1, 2, tzinfo=UTC)}, None),
        ('{"a": [1, "x"], "i": 2}', {"i": 2}, "a[] is no int32: found a string"),
        ('{"n": {"x": "one", "w": []}}', {"n": {"x": None, "w": []}}, "n.x is no int32: found a string"),
        ('{"b": 128}', {}, "b is no int8: out of range"),
        ('{"t": "12"}', {}, "t is no date32[day]: no date"),
        ("", None, "no JSON: Input data was truncated"),
        ('{"i": 1} {"i": 2}', None, "no JSON: JSON is malformed: trailing characters (byte 10)"),
        ('[{"i": 1}]', None, "no JSON object but an array"),
        ('{"d": NaN}', None, "no JSON: JSON is malformed: invalid character (byte 6)"),
    ],
)
def test_a_body_in_detail(text: str, expected: dict[str, Any] | None, reason: str | None) -> None:
    body, corrupt = BodyColumns(BodyOptions(format="json", schema=DDL), KIND).parse(pa.array([text.encode()]))
    whole = None if expected is None else dict.fromkeys(KIND.names) | expected
    assert body.to_pylist() == [whole]
    assert corrupt.to_pylist() == [reason and {"value": text.encode(), "reason": reason}]


@pytest.mark.parametrize("name", ["s", "n", "a"])
def test_bodies_of_any_depth_fail_nothing(name: str) -> None:
    """One as deep as can just be read could be neither written as text nor shown in a reason, and failed the read."""
    deep = [b'{"%s": %s%s}' % (name.encode(), b"[" * depth, b"]" * depth) for depth in range(700, 1_050)]
    body, corrupt = BodyColumns(BodyOptions(format="json", schema=DDL), KIND).parse(pa.array(deep, pa.binary()))
    assert [row is None for row in body.to_pylist()][-1]
    assert all(bad or row["s"].startswith("[[") for row, bad in zip(body.to_pylist(), corrupt.to_pylist(), strict=True))


def test_invalid_utf8_and_missing_bodies() -> None:
    bodies = pa.array([b'{"s": "\xff"}', None, b'{"s": "x"}'], pa.binary())
    body, corrupt = BodyColumns(BodyOptions(format="json", schema=DDL), KIND).parse(bodies)
    assert [row and row["s"] for row in body.to_pylist()] == [None, None, "x"]
    assert [row and row["value"] for row in corrupt.to_pylist()] == [b'{"s": "\xff"}', None, None]
    assert body.type == KIND
