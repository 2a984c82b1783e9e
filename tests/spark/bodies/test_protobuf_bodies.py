"""Protobuf bodies: every type, presence, damage, and descriptor sets that say nothing."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.body_columns import BodyColumns, BodyOptions, body_options_from

pytest.importorskip("google.protobuf")
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "d": (FIELD.TYPE_DOUBLE, "double"),
    "f": (FIELD.TYPE_FLOAT, "float"),
    "i": (FIELD.TYPE_INT32, "int"),
    "l": (FIELD.TYPE_SINT64, "bigint"),
    "u": (FIELD.TYPE_UINT32, "bigint"),
    "w": (FIELD.TYPE_UINT64, "decimal(20,0)"),
    "o": (FIELD.TYPE_BOOL, "boolean"),
    "s": (FIELD.TYPE_STRING, "string"),
    "y": (FIELD.TYPE_BYTES, "binary"),
}


def descriptor_set() -> bytes:
    """shop.Order, with a nested message, an enum, a map, a time, and shop.Tree, which contains itself."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="SENT", number=1)
    file.message_type.add(name="Part").field.add(name="n", number=1, type=FIELD.TYPE_INT32, label=1)
    order = file.message_type.add(name="Order")
    for number, (name, (kind, _)) in enumerate(SCALARS.items(), start=1):
        order.field.add(name=name, number=number, type=kind, label=1)
    order.field.add(name="state", number=20, type=FIELD.TYPE_ENUM, type_name=".shop.State", label=1)
    order.field.add(name="part", number=21, type=FIELD.TYPE_MESSAGE, type_name=".shop.Part", label=1)
    order.field.add(name="parts", number=22, type=FIELD.TYPE_MESSAGE, type_name=".shop.Part", label=3)
    order.field.add(name="tags", number=23, type=FIELD.TYPE_STRING, label=3)
    time = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=24, type=FIELD.TYPE_MESSAGE, type_name=time, label=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=1)
    order.field.add(name="counts", number=25, type=FIELD.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry", label=3)
    order.oneof_decl.add(name="_maybe")
    order.field.add(name="maybe", number=26, type=FIELD.TYPE_INT32, label=1, oneof_index=0, proto3_optional=True)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=FIELD.TYPE_MESSAGE, type_name=".shop.Tree", label=1)
    times = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[times, file]).SerializeToString())


SET = descriptor_set()
PART = pa.struct([("n", pa.int32())])
KIND = pa.struct(
    [
        *(("d", pa.float64()), ("f", pa.float32()), ("i", pa.int32()), ("l", pa.int64()), ("u", pa.int64())),
        *(("w", pa.decimal128(20, 0)), ("o", pa.bool_()), ("s", pa.string()), ("y", pa.binary())),
        *(("state", pa.string()), ("part", PART), ("parts", pa.list_(PART)), ("tags", pa.list_(pa.string()))),
        *(("at", pa.timestamp("us", "UTC")), ("counts", pa.map_(pa.string(), pa.int64())), ("maybe", pa.int32())),
    ]
)
OPTIONS = BodyOptions(format="protobuf", schema=SET, message_name="shop.Order")


def order(**fields: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(SET).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**fields)


def test_every_type_has_its_column() -> None:
    scalars = ", ".join(f"`{name}` {kind}" for name, (_, kind) in SCALARS.items())
    assert OPTIONS.ddl() == (
        f"{scalars}, `state` string, `part` STRUCT<`n`: int>, `parts` ARRAY<STRUCT<`n`: int>>, `tags` ARRAY<string>, "
        "`at` timestamp, `counts` MAP<string, bigint>, `maybe` int"
    )
    full = order(d=0.25, f=1.5, i=-1, l=-(2**40), u=2**32 - 1, w=2**64 - 1, o=True, s="Köln", y=b"\xff", state=1)
    full.part.n = 5
    full.parts.add(n=6)
    full.tags.append("a")
    full.at.FromJsonString("2026-01-31T01:02:03.000004Z")
    full.counts["x"] = 9
    full.maybe = 0
    unknown = order(state=7)
    bodies = [full.SerializeToString(), b"", None, unknown.SerializeToString()]
    body, corrupt = BodyColumns(OPTIONS, KIND).parse(pa.array(bodies, pa.binary()))
    found, empty, nothing, strange = body.to_pylist()
    assert found == {
        "d": 0.25,
        "f": 1.5,
        "i": -1,
        "l": -(2**40),
        "u": 2**32 - 1,
        "w": Decimal(2**64 - 1),
        "o": True,
        "s": "Köln",
        "y": b"\xff",
        "state": "SENT",
        "part": {"n": 5},
        "parts": [{"n": 6}],
        "tags": ["a"],
        "at": datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC),
        "counts": [("x", 9)],
        "maybe": 0,
    }
    assert empty == {
        "d": 0.0,
        "f": 0.0,
        "i": 0,
        "l": 0,
        "u": 0,
        "w": Decimal(0),
        "o": False,
        "s": "",
        "y": b"",
        "state": "NEW",
        "part": None,
        "parts": [],
        "tags": [],
        "at": None,
        "counts": [],
        "maybe": None,
    }
    assert nothing is None
    assert strange["state"] == "7"
    assert corrupt.null_count == 4


def test_damaged_bodies_are_set_apart() -> None:
    whole = order(s="some text").SerializeToString()
    bad = [whole[:-1], b"\xff", b"nonsense"]
    body, corrupt = BodyColumns(OPTIONS, KIND).parse(pa.array([whole, *bad], pa.binary()))
    assert [row is None for row in body.to_pylist()] == [False, True, True, True]
    rows = corrupt.to_pylist()
    assert [row and row["value"] for row in rows] == [None, *bad]
    assert all(row["reason"].startswith("no Protobuf message of the type") for row in rows[1:])


def test_options_name_a_file_or_the_set_itself(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(SET)
    words = {"bodyFormat": "protobuf", "bodyMessage": "shop.Order"}
    for text in (str(path), f"file://{path}", base64.b64encode(SET).decode()):
        assert body_options_from(words | {"bodySchema": text}) == OPTIONS
    cases = {
        "the descriptor set cannot be read": words | {"bodySchema": str(tmp_path / "nothing")},
        "name the file of the descriptor set": words | {"bodySchema": "message Order {}"},
        "say the full name": {"bodyFormat": "protobuf", "bodySchema": str(path)},
        "say the schema": {"bodyFormat": "json"},
        "'xml' is none of": {"bodyFormat": "xml", "bodySchema": "a"},
        "say the format": {"bodySchema": "a INT"},
    }
    for sentence, options in cases.items():
        with pytest.raises(InvalidRequestError, match=sentence):
            body_options_from(options)


@pytest.mark.parametrize(
    ("schema", "name", "sentence"),
    [
        (SET, "shop.Nothing", "the descriptor set has no such message"),
        (SET, "shop.Tree", "a message that contains itself has no columns"),
        (b"\xff\xff", "shop.Order", "no descriptor set"),
    ],
)
def test_message_types_without_columns_are_refused(schema: bytes, name: str, sentence: str) -> None:
    with pytest.raises(InvalidRequestError, match=sentence):
        BodyOptions(format="protobuf", schema=schema, message_name=name).ddl()
