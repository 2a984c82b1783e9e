"""Choice of columns, and the one schema that Spark must accept exactly."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS, arrow_schema, choose_columns, spark_ddl

ALL_COLUMNS = tuple(column.name for column in MESSAGE_COLUMNS)
DEFAULT = ("topic", "brokerName", "queueId", "queueOffset", "key", "tag", "value", "timestamp", "bornTimestamp")


def test_default_columns_are_the_documented_ones() -> None:
    assert choose_columns(None, include_properties=False) == DEFAULT
    assert choose_columns(None, include_properties=True) == (*DEFAULT, "properties")


def test_named_columns_keep_their_order_and_any_case() -> None:
    assert choose_columns("Value, queueoffset,MSGID", include_properties=False) == ("value", "queueOffset", "msgId")
    assert choose_columns("value", include_properties=True) == ("value", "properties")
    assert choose_columns("properties,value", include_properties=True) == ("properties", "value")


@pytest.mark.parametrize("text", ["", "value,", "value,nothing", "value,Value"])
def test_wrong_choices_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="columns"):
        choose_columns(text, include_properties=False)


def test_spark_reads_the_same_schema_from_the_ddl() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")
    structs = pytest.importorskip("pyspark.sql.types")
    fields = [
        (name, spark_type) for name, _, spark_type in (f.partition(" ") for f in spark_ddl(ALL_COLUMNS).split(", "))
    ]
    atoms = {
        "string": structs.StringType(),
        "int": structs.IntegerType(),
        "bigint": structs.LongType(),
        "binary": structs.BinaryType(),
        "timestamp": structs.TimestampType(),
        "map<string,string>": structs.MapType(structs.StringType(), structs.StringType()),
    }
    spark_schema = structs.StructType([structs.StructField(name, atoms[spark_type]) for name, spark_type in fields])
    assert types.to_arrow_schema(spark_schema, timezone="UTC").equals(arrow_schema(ALL_COLUMNS))


def test_one_choice_has_one_schema_object() -> None:
    assert arrow_schema(DEFAULT) is arrow_schema(DEFAULT)
