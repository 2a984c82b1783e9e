"""The columns of a message table, and the one exact schema object for each choice of them.

Spark compares the schema of the first Arrow batch with its own exactly (order, types, nullability) and sends
later batches unchecked, so both schemas come from this table and every batch is built with the same object.

    topic, brokerName, queueId, queueOffset, key, tag, value, timestamp, bornTimestamp        always, unless `columns`
    msgId, flag, sysFlag, reconsumeTimes, bornHost, storeHost                                  by `columns`
    properties                                                                 by `columns` or `includeProperties`

Rules
  - All columns are nullable; a column is null where the message has no such value (no tag, no keys, no unique id).
  - A queue is (brokerName, queueId): offsets of two brokers collide without the name.
  - `columns` gives just those columns, in its order; names are matched without regard to case.
  - `timestamp` is the store time, `bornTimestamp` the producer's; both are UTC with the broker's milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from thermocline.remoting.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumn:
    """One column: its name, its Arrow type, the same type in Spark's DDL, and whether it is read unasked."""

    name: str
    arrow_type: pa.DataType
    spark_type: str
    is_default: bool


_TIMESTAMP = pa.timestamp("us", tz="UTC")

MESSAGE_COLUMNS: tuple[MessageColumn, ...] = tuple(
    MessageColumn(name=name, arrow_type=arrow_type, spark_type=spark_type, is_default=is_default)
    for name, arrow_type, spark_type, is_default in (
        ("topic", pa.string(), "string", True),
        ("brokerName", pa.string(), "string", True),
        ("queueId", pa.int32(), "int", True),
        ("queueOffset", pa.int64(), "bigint", True),
        ("key", pa.string(), "string", True),
        ("tag", pa.string(), "string", True),
        ("value", pa.binary(), "binary", True),
        ("timestamp", _TIMESTAMP, "timestamp", True),
        ("bornTimestamp", _TIMESTAMP, "timestamp", True),
        ("msgId", pa.string(), "string", False),
        ("flag", pa.int32(), "int", False),
        ("sysFlag", pa.int32(), "int", False),
        ("reconsumeTimes", pa.int32(), "int", False),
        ("bornHost", pa.string(), "string", False),
        ("storeHost", pa.string(), "string", False),
        ("properties", pa.map_(pa.string(), pa.string()), "map<string,string>", False),
    )
)
COLUMN_BY_NAME = {column.name: column for column in MESSAGE_COLUMNS}
DEFAULT_COLUMNS = tuple(column.name for column in MESSAGE_COLUMNS if column.is_default)
PROPERTIES_COLUMN = "properties"
_NAME_BY_LOWER = {name.lower(): name for name in COLUMN_BY_NAME}


def choose_columns(text: str | None, *, include_properties: bool) -> tuple[str, ...]:
    """Column names from the options `columns` (comma separated, None for the default) and `includeProperties`.

    Raises:
        InvalidRequestError: An unknown name, a name given twice, or an empty list.
    """
    if text is None:
        return DEFAULT_COLUMNS + ((PROPERTIES_COLUMN,) if include_properties else ())
    chosen: list[str] = []
    for word in text.split(","):
        name = _NAME_BY_LOWER.get(word.strip().lower())
        if name is None:
            raise InvalidRequestError(
                f"unknown column {word.strip()!r}; the columns are {', '.join(COLUMN_BY_NAME)}", option="columns"
            )
        if name in chosen:
            raise InvalidRequestError(f"column {name!r} is named twice", option="columns")
        chosen.append(name)
    if include_properties and PROPERTIES_COLUMN not in chosen:
        chosen.append(PROPERTIES_COLUMN)
    return tuple(chosen)


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The exact Arrow schema of these columns; the same object for the same columns."""
    return pa.schema([pa.field(name, COLUMN_BY_NAME[name].arrow_type, nullable=True) for name in columns])


def spark_ddl(columns: Sequence[str]) -> str:
    """The same schema in Spark's DDL, as a Python data source may return it."""
    return ", ".join(f"{name} {COLUMN_BY_NAME[name].spark_type}" for name in columns)
