"""BodyReader: the data source's reader with bodies in columns, around the reader that gives messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from thermocline.spark.bodies.body_columns import BODY, BodyColumns, BodyOptions
from thermocline.spark.decoding.message_columns import choose_columns

VALUE = "value"


class BodyReader(DataSourceReader):
    """Pickled into every task, as the reader within."""

    def __init__(self, reader: DataSourceReader, options: BodyOptions, schema: StructType) -> None:
        """`reader` gives the columns of `options_with_value`; `schema`: what Spark made of the source's schema."""
        self._reader = reader
        self._options = options
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """Those of the reader within."""
        return list(self._reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages with their bodies parsed."""
        columns = BodyColumns(self._options, self._schema.field(BODY).type)
        yield from columns.append(self._reader.read(partition), self._schema, value=VALUE)


def options_with_value(options: Mapping[str, str]) -> dict[str, str]:
    """The options for a reader that gives the bodies too, whether they are among the columns asked for or not."""
    words = {name.lower(): text for name, text in options.items()}
    if "columns" not in words:
        return words
    if VALUE not in choose_columns(words["columns"], include_properties=False):
        words["columns"] += f",{VALUE}"
    return words
