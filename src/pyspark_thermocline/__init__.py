"""Makes `spark.read.format("thermocline")` work without registration: Spark imports packages named `pyspark_*`.

Spark imports every such package at its first look-up of any format, so nothing but the class's name is made here.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source `thermocline`; see `thermocline.spark.data_source`, which is imported when it is used."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "thermocline"

    def schema(self) -> str:
        """The columns that the options ask for."""
        from thermocline.spark.data_source import table_schema

        return table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the cold tier that the options name."""
        from thermocline.spark.data_source import reader_of

        return reader_of(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of the cold tier first, then of what brokers hold."""
        from thermocline.spark.streaming.open_stream import open_stream

        return open_stream(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of messages to the topic that the options name."""
        from thermocline.spark.writing.message_writer import BatchMessageWriter

        return BatchMessageWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The same for the micro-batches of a streaming query."""
        from thermocline.spark.writing.message_writer import StreamMessageWriter

        return StreamMessageWriter(self.options, schema, overwrite=overwrite)
