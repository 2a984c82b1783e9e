"""PartOutput: rows that a job keeps of each chunk until it has them all, as Parquet beside its record.

A chunk's part counts once its step `done` names its folder; what was begun and not named is another try's, and is
deleted with the rest when the job is finished.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from thermocline.spark.jobs.job_record import DONE, FOLDER, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PartOutput:
    """The parts of one job."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record

    def write_chunk(self, number: int, table: DataFrame) -> None:
        """Keep the rows of a chunk; it is done."""
        folder = f"{FOLDER}/parts/{number:05}-{uuid.uuid4().hex}"
        table.write.format("parquet").mode("error").save(self._record.files.url(folder))
        self._record.keep_step(DONE, number, {"part": folder})

    def table(self, spark: SparkSession) -> DataFrame:
        """All rows kept, of every chunk that is done; there is at least one."""
        parts = [result["part"] for result in self._record.done().values() if "part" in result]
        assert parts
        return spark.read.parquet(*(self._record.files.url(part) for part in parts))
