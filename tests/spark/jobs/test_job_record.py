"""The record of a job and the files that it is kept in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, UnavailableError
from thermocline.spark.jobs.job_files import JobFiles
from thermocline.spark.jobs.job_record import JobRecord, harmless_options, harmless_url
from thermocline.spark.jobs.replay import repeated_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def files(spark_session: SparkSession, tmp_path: Path) -> JobFiles:
    return JobFiles(spark_session, str(tmp_path / "job"))


def test_a_file_is_made_once(files: JobFiles) -> None:
    files.create("a/b.json", b"first")
    files.create("a/b.json", b"second")
    assert files.read("a/b.json") == b"first"
    assert files.read("a/c.json") is None
    assert (files.names("a"), files.names("nothing")) == (["b.json"], [])


def test_a_move_may_be_repeated_whatever_became_of_the_first(files: JobFiles) -> None:
    """Not begun, done, and done but for the delete of what was copied."""
    name = "day=2026-01-31/tag=50% %3A=a/part-00000.json"
    files.create("staging/part", b"rows")
    for _ in range(2):
        files.move("staging/part", name)
        assert (files.read(name), files.has("staging/part")) == (b"rows", False)
    files.create("staging/part", b"rows")
    files.move("staging/part", name)
    assert (files.read(name), files.has("staging/part")) == (b"rows", False)
    assert files.files("") == [name]
    with pytest.raises(CorruptDataError, match="is gone"):
        files.move("staging/part", "elsewhere")


def test_a_file_system_that_fails_is_one_sentence(spark_session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    files = JobFiles(spark_session, str(tmp_path / "file"))
    with pytest.raises(UnavailableError, match="directory cannot be used") as caught:
        files.create("x/y", b"")
    assert "\n" not in str(caught.value)
    with pytest.raises(UnavailableError, match="cannot be used"):
        JobFiles(spark_session, "nowhere://x/y")


def test_a_record_is_found_again_and_refuses_other_arguments(files: JobFiles) -> None:
    record = JobRecord.open(files, job="count", arguments={"by": ["day", "tag"], "topic": "orders"})
    assert not record.is_continued
    record.save_plan({"chunks": 3})
    record.keep_step("done", 2, {"rows": 7})
    again = JobRecord.open(files, job="count", arguments={"topic": "orders", "by": ["day", "tag"]})
    assert again.is_continued
    assert (again.plan, again.done(), again.report) == ({"chunks": 3}, {2: {"rows": 7}}, None)
    assert again.keep_step("done", 2, {"rows": 8}) == {"rows": 7}, "what is kept stays"
    again.save_plan({"chunks": 2})
    assert again.plan == {"chunks": 2}
    for other in ({"job": "count", "arguments": {"topic": "orders"}}, {"job": "sum", "arguments": {"topic": "orders"}}):
        with pytest.raises(InvalidRequestError, match="other arguments") as caught:
            JobRecord.open(files, **other)  # type: ignore[arg-type]
    assert "differs=by, job" in str(caught.value)


def test_a_run_that_was_cut_before_its_arguments_were_kept_begins_again(files: JobFiles) -> None:
    files.create("_thermocline/plan-00001.json", b"{}")
    record = JobRecord.open(files, job="count", arguments={})
    assert not record.is_continued
    record.save_plan({"chunks": 1})
    assert JobRecord.open(files, job="count", arguments={}).plan == {"chunks": 1}


def test_a_damaged_record_is_no_empty_one(files: JobFiles) -> None:
    JobRecord.open(files, job="count", arguments={}).save_plan({})
    files.create("_thermocline/done/00000.json", b"{")
    record = JobRecord.open(files, job="count", arguments={})
    with pytest.raises(CorruptDataError, match="is damaged"):
        record.done()


def test_secrets_are_not_kept() -> None:
    options = {"tags": "A", "s3.secretKey": "hidden", "fs.s3a.access.key": "hidden", "maxPartitionBytes": "1m"}
    assert harmless_options(options) == {"tags": "A", "maxpartitionbytes": "1m"}
    assert harmless_url("s3://bucket/prefix/?secret_key=hidden") == "s3://bucket/prefix"
    urls = '["s3://a/x?endpoint=http://h:1&secret_key=hidden", "s3://b/y?secret_key=hidden"]'
    kept = harmless_options({"Paths": urls, "metrics": "tcp://h:1/token"})
    assert kept.keys() == {"paths"}, "where tasks report to is another in each run"
    assert "hidden" not in kept["paths"]
    place = "s3://bucket/orders.receipt.json?secret_key=hidden"
    form = repeated_arguments("json", "text", ("day",), from_group=None, receipt=place)
    assert form["receipt"] == "s3://bucket/orders.receipt.json"
