"""FileOutput: the files of a chunk, with each row once, even if the job is killed at any point.

    1  Spark writes the chunk into a folder of its own under `staging/`; a killed attempt leaves its folder behind, and
       the next one uses another: executors of the killed attempt may still write into theirs
    2  the step `written` of the chunk is kept: how many rows, and which file gets which name
    3  every file gets its name in the output: `part-00012-00000.parquet`, under its partitions' folders
    4  the step `done` is kept

Killed before 2, the chunk is written again; after it, what is left to do is done. Names say where a row came from,
never when it was written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.jobs.job_record import DONE, FOLDER, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputFormat = Literal["parquet", "json"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("parquet", "json")
WRITTEN = "written"
SUCCESS = "_SUCCESS"


class FileOutput:
    """Writes the chunks of one job into its directory."""

    def __init__(self, record: JobRecord, *, output_format: OutputFormat, partition_by: Sequence[str] = ()) -> None:
        if output_format not in OUTPUT_FORMATS:
            raise InvalidRequestError(
                f"{output_format!r} is no format; write parquet or json", output=record.files.directory
            )
        self._record = record
        self._files = record.files
        self._format = output_format
        self._partition_by = partition_by

    def write_chunk(self, number: int, table: DataFrame) -> int:
        """Write the rows of a chunk, or finish what an earlier run began of it; returns how many rows it has.

        Raises:
            UnavailableError: The file system fails.
            CorruptDataError: A file that an earlier run has written is gone.
        """
        written = self._record.step(WRITTEN, number)
        if written is None:
            folder = f"{FOLDER}/staging/{number:05}-{uuid.uuid4().hex}"
            row_count = self._write(table, folder)
            names = [name for name in self._files.files(folder) if is_data(name)]
            moves = {f"{folder}/{name}": _final_name(name, number, index) for index, name in enumerate(names)}
            written = self._record.keep_step(WRITTEN, number, {"rows": row_count, "moves": moves})
        for source, target in written["moves"].items():
            self._files.move(source, target)
        self._record.keep_step(DONE, number, {"rows": written["rows"]})
        return int(written["rows"])

    def finish(self) -> None:
        """Write the marker `_SUCCESS`, as Spark does, once all chunks are written."""
        self._files.create(SUCCESS, b"")

    def _write(self, table: DataFrame, folder: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counted = Observation()
        table = table.observe(counted, f.count(f.lit(1)).alias("rows"))
        writer = table.write.format(self._format).mode("error").partitionBy(*self._partition_by)
        writer.save(self._files.url(folder))
        return int(counted.get["rows"])


def is_data(name: str) -> bool:
    """Whether a file that Spark wrote holds rows: by none of its names it is one that Spark itself passes over, as are
    those of attempts that it did not commit, which may be written still."""
    return not any(part.startswith(("_", ".")) for part in name.split("/"))


def partition_columns(text: str | Iterable[str] | None) -> tuple[str, ...]:
    """The columns of `day,tag`; InvalidRequestError for any other, or one that comes twice."""
    words = [] if not text else text.split(",") if isinstance(text, str) else list(text)
    names = tuple(word.strip() for word in words)
    for name in names:
        if name not in ("day", "tag") or names.count(name) > 1:
            raise InvalidRequestError(f"{name!r} is nothing to partition by; write day, tag or day,tag")
    return names


def _final_name(name: str, number: int, index: int) -> str:
    folder, _, last = name.rpartition("/")
    # part-00000-9b2...-c000.snappy.parquet: what is behind the first point says how to read it.
    return f"{folder}/part-{number:05}-{index:05}.{last.partition('.')[2]}".lstrip("/")
