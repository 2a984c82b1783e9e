"""Bodies in columns, around whatever gives messages: batch readers, streams, and the tasks of `engine="s3a"`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from thermocline.spark.bodies.body_columns import BODY, BodyColumns, BodyOptions
from thermocline.spark.bodies.json_schema import check_json_schema
from thermocline.spark.decoding.message_columns import choose_columns

VALUE = "value"


@dataclass(frozen=True, slots=True)
class BodyBatches:
    """Puts bodies into columns of batches; pickled into every task."""

    options: BodyOptions
    schema: pa.Schema

    @classmethod
    def of(cls, options: BodyOptions, schema: StructType) -> BodyBatches:
        """`schema`: what Spark made of the source's schema. InvalidRequestError: no JSON can be read by it."""
        if options.format == "json":
            check_json_schema(schema[BODY].dataType)
        return cls(options, to_arrow_schema(schema, timezone="UTC"))

    def append(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages with their bodies parsed; `batches` have the columns of `options_with_value`."""
        columns = BodyColumns(self.options, self.schema.field(BODY).type)
        yield from columns.append(batches, self.schema, value=VALUE)


class BodyReader(DataSourceReader):
    """A batch reader with bodies in columns; pickled into every task, as the reader within."""

    def __init__(self, reader: DataSourceReader, bodies: BodyBatches) -> None:
        self._reader = reader
        self._bodies = bodies

    def partitions(self) -> list[InputPartition]:
        """Those of the reader within."""
        return list(self._reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages with their bodies parsed."""
        yield from self._bodies.append(self._reader.read(partition))


@dataclass(frozen=True, slots=True)
class WithBodies:
    """A function of `mapInArrow` that gives messages, with their bodies in columns."""

    inner: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    bodies: BodyBatches

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See the class."""
        yield from self.bodies.append(self.inner(batches))


def options_with_value(options: Mapping[str, str]) -> dict[str, str]:
    """Return `options` with the column `value` added, so that the reader returns the bodies too."""
    words = {name.lower(): text for name, text in options.items()}
    if "columns" not in words:
        return words
    if VALUE not in choose_columns(words["columns"], include_properties=False):
        words["columns"] += f",{VALUE}"
    return words
