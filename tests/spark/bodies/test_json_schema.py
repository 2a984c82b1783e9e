"""Schemas that JSON bodies cannot be read by are refused before a task runs."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.body_columns import BODY, BodyOptions
from thermocline.spark.bodies.body_reader import BodyBatches

TEXT = t.StringType()
OPTIONS = BodyOptions(format="json", schema="as Spark has parsed it")


def table(*fields: t.StructField) -> t.StructType:
    return t.StructType([t.StructField("value", t.BinaryType()), t.StructField(BODY, t.StructType(list(fields)))])


def test_what_from_json_takes_is_taken() -> None:
    inner = t.StructType([t.StructField("m", t.MapType(TEXT, t.ArrayType(t.DecimalType(9, 2))))])
    kinds = [t.ByteType(), t.DoubleType(), t.BooleanType(), t.DateType(), t.TimestampType(), inner]
    schema = table(*(t.StructField(f"c{number}", kind) for number, kind in enumerate(kinds)))
    assert BodyBatches.of(OPTIONS, schema).schema.names == ["value", BODY]


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (t.StructField("id", t.LongType(), nullable=False), "leave NOT NULL out .*column=id"),
        (
            t.StructField("items", t.ArrayType(t.StructType([t.StructField("n", TEXT, nullable=False)]))),
            r"leave NOT NULL out .*column=items\[\]\.n",
        ),
        (t.StructField("by", t.MapType(t.IntegerType(), TEXT)), "keys of a map are strings .*column=by"),
        (t.StructField("v", t.VariantType()), "no value of a JSON body is of this type .*column=v type=variant"),
        (t.StructField("d", t.MapType(TEXT, t.DayTimeIntervalType())), r"this type .*column=d\{\} type=interval day"),
        (t.StructField("n", t.NullType()), "this type .*column=n type=void"),
    ],
)
def test_what_it_does_not_take_is_refused_by_name(field: t.StructField, sentence: str) -> None:
    """All of them failed in tasks, by Java's or Python's words: a null where there may be none, an assertion."""
    with pytest.raises(InvalidRequestError, match=sentence):
        BodyBatches.of(OPTIONS, table(field))
