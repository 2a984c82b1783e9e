"""Spark from an environment with the wheel alone: a program that imports nothing of the checkout.

    python spark_checks.py with-connector JSON MASTER EXECUTORS
    python spark_checks.py without-connector JSON

JSON says which bucket, how many messages, where the environment is. Ends with the line `checked` when all held.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from thermocline.cli.main import run
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import local_session, read_cold

SENTENCE = "PySpark does not bring org.apache.hadoop:hadoop-aws:3.5.0"


def main() -> None:
    """Run the checks that are named."""
    case = json.loads(sys.argv[2])
    if sys.argv[1] == "with-connector":
        with_connector(case, master=sys.argv[3], executor_count=int(sys.argv[4]))
    else:
        without_connector(case)
    sys.stdout.write("checked\n")


def with_connector(case: dict[str, Any], *, master: str, executor_count: int) -> None:
    """Equal rows by both engines, jobs by command, and outputs through s3a."""
    spark = local_session(s3a=True, settings={"spark.master": master})
    expected = sorted((f"k{number}", f"body {number}".encode()) for number in range(case["count"]))
    context = spark.sparkContext
    places = context.parallelize(range(8), 8).map(lambda _: place_of_worker()).distinct().collect()
    assert len({parent for _, parent in places}) == executor_count, places
    assert all(package.startswith(case["prefix"]) for package, _ in places), places
    for name, value in case["options"].items():
        spark.conf.set(name, value)
    for engine in ("direct", "s3a"):
        table = read_cold(spark, case["url"], topic="orders", engine=engine)
        assert sorted((row["key"], bytes(row["value"])) for row in table.collect()) == expected, engine
    by_name = spark.read.format("thermocline").options(**case["options"]).option("topic", "orders").load(case["url"])
    assert by_name.count() == case["count"]
    for name in case["options"]:
        spark.conf.unset(name)
    options = [word for name, value in case["options"].items() for word in ("--option", f"{name}={value}")]
    source = ["--from", case["url"], "--engine", "s3a", *options, "--json"]
    status, out, err = command("spark", "counts", "orders", *source)
    assert (status, json.loads(out)["message_count"]) == (0, case["count"]), err
    bucket = case["url"].removesuffix("/cold")
    replay = ["--to", f"{bucket}/replayed", "--receipt", "./orders.receipt.json"]
    status, out, err = command("spark", "catch-up", "orders", *source, *replay)
    assert (status, json.loads(out)["row_count"]) == (0, case["count"]), err
    assert all(spark.conf.get(name, None) is None for name in case["options"]), "the session is as it was"
    for name, value in case["options"].items():
        spark.conf.set(name, value)
    assert spark.read.parquet(f"{bucket}/replayed").count() == case["count"]
    spark.stop()


def place_of_worker() -> tuple[str, int]:
    """Where a worker has the package from, and the process that it belongs to; only the wheel is to be found."""
    import thermocline

    for name in ("tests", "tooling", "pytest"):
        assert importlib.util.find_spec(name) is None, name
    return thermocline.__file__, os.getppid()


def without_connector(case: dict[str, Any]) -> None:
    """Whatever needs s3a in a plain session is one sentence that names the artifact, at once."""
    spark = local_session()
    for name, value in case["options"].items():
        spark.conf.set(name, value)
    assert read_cold(spark, case["url"], topic="orders").count() == case["count"], "the direct engine needs none"
    attempts: tuple[Callable[[], object], ...] = (
        lambda: read_cold(spark, case["url"], topic="orders", engine="s3a"),
        lambda: local_session(s3a=True),  # a session that runs cannot get the connector any more
    )
    for attempt in attempts:
        failure: Exception | None = None
        try:
            attempt()
        except InvalidRequestError as error:
            failure = error
        assert SENTENCE in str(failure), failure
    for words in (["--engine", "s3a"], ["--to", f"{case['url']}-counts"]):
        status, out, err = command("spark", "counts", "orders", "--from", case["url"], *words)
        assert (status, out) == (1, ""), words
        assert SENTENCE in err, err
        assert err.count("\n") == 1, err
    spark.stop()


def command(*words: str) -> tuple[int, str, str]:
    """A command in this process, which has the session; its status and output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(words)
    return status, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    main()
