"""read_stream: one call for a stream of messages; what `read_cold` is for batches.

It reaches the bucket as the session's `fs.s3a.*` settings say, and says a condition before the load, so that what the
condition rules out by topic, broker, queue, offset, time, tag or key is not fetched, and of the live part not decoded.
Every offset that is not ruled out by its number is still pulled from the brokers, for each is accounted for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.spark.access.hadoop_options import FORMAT, read_options
from thermocline.spark.condition import filters_of
from thermocline.spark.data_source import table_schema
from thermocline.spark.metrics.collector import OPTION
from thermocline.spark.reading.pruning_filters import filters_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def read_stream(
    spark: SparkSession, url: str, *, topic: str, where: str | Column | None = None, **options: str
) -> DataFrame:
    """The stream of `topic` (one or several, comma separated) under `url`; `options` are those of streams.

    `where`: a condition on the columns that are read; the rows are those of `.where(condition)`. Classic sessions only.

    Raises:
        InvalidRequestError: An option is wrong.
        pyspark.errors.AnalysisException: The condition cannot be resolved over the columns.
    """
    reached = {name: value for name, value in read_options(spark, url).items() if name != OPTION}
    reader = spark.readStream.format(FORMAT).options(**reached).option("topic", topic).options(**options)
    if where is None:
        return reader.load(url)
    filters = filters_of(spark, where, table_schema({**options, "path": url, "topic": topic}))
    return reader.option("where", filters_text(filters)).load(url).where(where)
