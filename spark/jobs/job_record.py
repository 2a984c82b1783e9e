"""JobRecord: the arguments, the plan and the results of a job, stored in its directory so that it can be continued.

    DIRECTORY/_thermocline/arguments.json          the job and its arguments; another job, or others, are refused
    DIRECTORY/_thermocline/plan-00001.json         what is to be read, in chunks; the newest counts
    DIRECTORY/_thermocline/{step}/00012.json       what came of one step of one chunk; the step `done` ends it
    DIRECTORY/_thermocline/report.json             the job's own report: it is finished
    DIRECTORY/_thermocline/staging/, parts/, ...   rows on their way; deleted in the end

Each file is made once and never changed. A name that begins with an underscore is no data to Spark, Hive and pyarrow.
Two runs of one job at the same time are the user's mistake, and are not kept apart.
No secret is written: arguments are those that say what is read and written, not how the bucket is reached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.spark.access.store_options import HADOOP_PREFIX
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.tiered.objects import masked_url, without_options

FOLDER = "_thermocline"
FORMAT_VERSION = 1
DONE = "done"
ON_THEIR_WAY = ("staging", "parts", "sides")
URL_OPTIONS = ("path", "paths")
_ARGUMENTS, _REPORT, _PLAN = "arguments.json", "report.json", "plan-"


class JobRecord:
    """The record in one directory."""

    def __init__(self, files: JobFiles, arguments: Mapping[str, Any], *, is_continued: bool) -> None:
        self.files = files
        self.is_continued = is_continued
        """Whether an earlier run of the job has begun here."""
        self._arguments = arguments

    @classmethod
    def open(cls, files: JobFiles, *, job: str, arguments: Mapping[str, object]) -> JobRecord:
        """Find the record of this job in its directory, or begin one; nothing is written yet.

        Raises:
            InvalidRequestError: The directory holds something else, another job, or this one with other arguments.
            CorruptDataError: The record cannot be read.
            UnavailableError: The file system fails.
        """
        saved = _read(files, _ARGUMENTS)
        wanted = _as_json({"format_version": FORMAT_VERSION, "job": job, **arguments})
        if saved is None:
            if any(name != FOLDER for name in files.names()):
                raise InvalidRequestError(
                    "the output exists already and is none of this job's; name a new directory", output=files.directory
                )
            return cls(files, wanted, is_continued=False)
        differing = sorted(name for name in saved.keys() | wanted.keys() if saved.get(name) != wanted.get(name))
        if differing:
            raise InvalidRequestError(
                "the output belongs to a job with other arguments; repeat those, or name a new directory",
                output=files.directory,
                differs=", ".join(differing),
            )
        record = cls(files, wanted, is_continued=True)
        if record.report is not None:
            record._tidy_up()  # a run that was killed after its last chunk has not done it
        return record

    @property
    def plan(self) -> dict[str, Any] | None:
        """The newest plan; None before the first."""
        plans = self._plans()
        return _read(self.files, plans[-1]) if plans else None

    def save_plan(self, plan: Mapping[str, Any]) -> None:
        """Keep a plan; it counts from now on."""
        number = len(self._plans()) + 1
        self._create(f"{_PLAN}{number:05}.json", plan)
        # Behind the plan, so that a job with arguments has one.
        self._create(_ARGUMENTS, self._arguments)

    def step(self, step: str, number: int) -> dict[str, Any] | None:
        """The stored result of a step of a chunk; None before it."""
        return _read(self.files, f"{step}/{number:05}.json")

    def keep_step(self, step: str, number: int, value: Mapping[str, Any]) -> dict[str, Any]:
        """Store the result of a step of a chunk, and return the stored one: an earlier result stays."""
        self._create(f"{step}/{number:05}.json", value)
        kept = self.step(step, number)
        assert kept is not None
        return kept

    def done(self) -> dict[int, dict[str, Any]]:
        """The results of all finished chunks, by number."""
        results: dict[int, dict[str, Any]] = {}
        for name in self.files.names(f"{FOLDER}/{DONE}"):
            if name.endswith(".json") and name[:-5].isdecimal():
                result = self.step(DONE, int(name[:-5]))
                assert result is not None
                results[int(name[:-5])] = result
        return results

    @property
    def report(self) -> dict[str, Any] | None:
        """The report of the finished job; None while it is not."""
        return _read(self.files, _REPORT)

    def finish(self, report: Mapping[str, Any]) -> None:
        """The job is finished: the report is kept, then what was on its way is deleted."""
        self._create(_REPORT, report)
        self._tidy_up()

    def _tidy_up(self) -> None:
        for folder in ON_THEIR_WAY:
            self.files.delete(f"{FOLDER}/{folder}")

    def _plans(self) -> list[str]:
        return [name for name in self.files.names(FOLDER) if name.startswith(_PLAN) and name.endswith(".json")]

    def _create(self, name: str, value: Mapping[str, Any]) -> None:
        self.files.create(f"{FOLDER}/{name}", json.dumps(value, sort_keys=True, indent=1).encode())


def harmless_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that select messages, by lower-cased name; without secrets, those that reach the bucket, and where
    tasks report to."""
    return {
        name.lower(): masked_url(value) if name.lower() in URL_OPTIONS else value
        for name, value in options.items()
        if not name.lower().startswith(("s3.", HADOOP_PREFIX, "engine", "metrics")) and value is not None
    }


def harmless_url(url: str) -> str:
    """The URL without what is behind `?`."""
    return without_options(url).rstrip("/")


def _as_json(value: Mapping[str, object]) -> dict[str, Any]:
    """The value as it comes back from its file."""
    read: dict[str, Any] = json.loads(json.dumps(value))
    return read


def _read(files: JobFiles, name: str) -> dict[str, Any] | None:
    data = files.read(f"{FOLDER}/{name}")
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CorruptDataError("a file of the job's record is damaged", file=name, output=files.directory) from error
    if not isinstance(value, dict):
        raise CorruptDataError("a file of the job's record is damaged", file=name, output=files.directory)
    return value
