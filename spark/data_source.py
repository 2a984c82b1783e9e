"""The data source `thermocline`: what Spark calls, in the processes where it calls it.

    table_schema          planner process on the driver        options -> columns
    ColdTierReader        planner process on the driver        options -> plan -> one partition a task
    ColdTierReader.read   Python worker of an executor         partition -> Arrow batches

The reader is pickled into every task: it holds the checked options and nothing that is open. Each plan resolves the
catalog's version, the range of every queue and the moment of expiry once, so all tasks and retries of one plan give the
same rows; `resolve_plan` and `pinned_options` make several plans equal. Spark plans once for each `load()`.

Spark's own push-down of filters is not used: it keeps one plan for each `load()`, the last one made, whatever filters
the next query or the other half of a union has (ADR 39). `read_cold(where=...)` says the condition before the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.spark.bodies.body_columns import body_options_from
from thermocline.spark.bodies.body_reader import BodyBatches, BodyReader, options_with_value
from thermocline.spark.decoding.message_columns import choose_columns, spark_ddl
from thermocline.spark.metrics.sending import send_report, task_reported
from thermocline.spark.plain_errors import plain_errors
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import batch_options_from, read_options_from


@plain_errors()
def table_schema(options: Mapping[str, str]) -> str:
    """The columns that the options ask for, as DDL; InvalidRequestError when one is wrong."""
    checked = read_options_from(options)
    columns = spark_ddl(choose_columns(checked.columns, include_properties=checked.include_properties))
    bodies = body_options_from(options)
    return columns if bodies is None else f"{columns}, {bodies.columns_ddl()}"


@plain_errors()
def reader_of(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """A batch reader for these options; errors as for ColdTierReader."""
    bodies = body_options_from(options)
    if bodies is None:
        return ColdTierReader(options)
    return BodyReader(ColdTierReader(options_with_value(options)), BodyBatches.of(bodies, schema))


class ColdTierPartition(InputPartition):
    """The slices of one task."""

    def __init__(self, slices: tuple[SegmentSlice, ...]) -> None:
        super().__init__(None)
        self.slices = slices


class ColdTierReader(DataSourceReader):
    """Plans a batch read and reads its tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = batch_options_from(options)

    def partitions(self) -> list[InputPartition]:
        """One partition a task of the plan; one that is empty when nothing is to be read, or Spark would make its own.

        Raises:
            InvalidRequestError: An option is wrong, a topic or version is not there, an offset is out of range.
            UnavailableError: The store gave no answer, or refused.
        """
        with plain_errors():
            plan = resolve_plan(self._options, now_ms=wall_clock_ms())
        if self._options.metrics_address is not None:
            report = {"kind": "plan", "engine": "direct", "tasks": len(plan.tasks), **asdict(plan.counts)}
            send_report(self._options.metrics_address, report)
        return [ColdTierPartition(slices) for slices in plan.tasks or ((),)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; see FrameReader."""
        assert isinstance(partition, ColdTierPartition)
        reader = FrameReader(self._options)
        with plain_errors(), task_reported(self._options.metrics_address, lambda: reader.counts, engine="direct"):
            yield from reader.read(partition.slices)
