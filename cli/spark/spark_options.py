"""What the commands of `thermocline spark` share: the options that say what is read, and in which session.

@click.command(...)
@reads_cold_tier            adds the options; the command gets them as one `ColdRead`
def counts(read: ColdRead, ...) -> None:
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from thermocline.cli.common.output import Output
from thermocline.cli.common.parsing import parse_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ColdRead", "ReportProgress", "in_session", "reads_cold_tier"]

P = ParamSpec("P")
R = TypeVar("R")
ReportProgress = Callable[[int, int], None]
"""Receives the progress of a job: bytes done, and bytes in all."""

_OUR_ERROR = re.compile(r"^thermocline\.[\w.]+Error: (.+)$", re.MULTILINE)
HADOOP_PREFIX = "fs.s3a."
_NAMED = {
    "tags": "tags",
    "queues": "queues",
    "starting_offsets": "startingOffsets",
    "ending_offsets": "endingOffsets",
    "starting_time": "startingTimestamp",
    "ending_time": "endingTimestamp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRead:
    """Where and what a command reads, on how many cores, and where its result goes."""

    url: str
    options: Mapping[str, str]
    hadoop: Mapping[str, str]
    """fs.s3a.* settings for the session: an output is reached by them; with the engine s3a they count there alone."""
    cores: int | None
    output: Output

    @property
    def engine(self) -> str:
        """What fetches messages."""
        return self.options.get("engine", "direct")


def reads_cold_tier(command: Callable[Concatenate[ColdRead, P], R]) -> Callable[P, R]:
    """Add the options that every command on the cold tier takes."""

    @click.option(
        "--from",
        "url",
        required=True,
        metavar="URL",
        help="The cold tier: s3a://bucket/prefix, s3://bucket/prefix?endpoint=URL or file:///directory.",
    )
    @click.option("--tags", help="Only messages with one of these tags: 'A || B'.")
    @click.option("--queues", help="Only these queues: broker-a:0,broker-a:1 or 0,1.")
    @click.option(
        "--starting-offsets",
        metavar="earliest|latest|JSON",
        help="""Where to start in every queue: latest, or as '{"orders": {"broker-a:0": 17}}'.""",
    )
    @click.option("--ending-offsets", metavar="earliest|latest|JSON", help="Where to end, exclusive.")
    @click.option(
        "--starting-time",
        metavar="TIME",
        help="Store time to start at: milliseconds, or ISO 8601, UTC when it names no zone.",
    )
    @click.option("--ending-time", metavar="TIME", help="Store time to end before, written so too.")
    @click.option(
        "--engine",
        type=click.Choice(["direct", "s3a"]),
        default="direct",
        show_default=True,
        help="What fetches messages: this project's S3 client, or Hadoop's s3a.",
    )
    @click.option("--option", "pairs", multiple=True, metavar="NAME=VALUE", help="Any other option of the data source.")
    @click.option("--cores", type=click.IntRange(min=1), help="Cores to use; all when absent.")
    @click.option("--json", "as_json", is_flag=True, help="Write the report as JSON for programs instead of a table.")
    @functools.wraps(command)
    def with_read(*args: P.args, **kwargs: P.kwargs) -> R:
        from thermocline.spark.session import check_packages

        check_packages()
        given = dict(kwargs)
        options = parse_pairs(_pairs(given.pop("pairs")), option="--option")
        for name, option in _NAMED.items():
            value = given.pop(name)
            if value is not None:
                options[option] = str(value)
        cores, engine = given.pop("cores"), given.pop("engine")
        hadoop = {name: value for name, value in options.items() if name.startswith(HADOOP_PREFIX)}
        if engine == "s3a":
            options = {name: value for name, value in options.items() if name not in hadoop} | {"engine": "s3a"}
        read = ColdRead(
            url=str(given.pop("url")),
            options=options,
            hadoop=hadoop,
            cores=None if cores is None else int(str(cores)),
            output=Output(as_json=bool(given.pop("as_json"))),
        )
        return command(read, *args, **given)  # type: ignore[arg-type]

    return with_read


@contextmanager
def in_session(
    read: ColdRead, title: str, *, output: str | None = None
) -> Iterator[tuple[SparkSession, ReportProgress]]:
    """The session for a command, and the callback for its progress bar.

    It has the s3a connector where messages are fetched by it, or `output`, a directory, is reached by it.
    """
    from thermocline.spark.session import session_for_job

    s3a = read.engine == "s3a" or (output or "").startswith("s3a://")
    with (
        session_for_job(app_name=f"thermocline {title}", cores=read.cores, s3a=s3a) as spark,
        _settings(spark, read.hadoop),
        read.output.progress() as progress,
    ):
        bar = progress.add_task(title, total=None)
        with _one_sentence():
            yield spark, lambda done, total: progress.update(bar, completed=done, total=max(total, 1))


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, and afterwards without them: it may be one that others use."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Spark's exceptions, which hold the stacks of three processes, as what went wrong in the innermost."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        ours = _OUR_ERROR.search(text)
        sentence = ours[1] if ours is not None else text.strip().partition("\n")[0]
        raise click.ClickException(sentence.removesuffix(".") + ".") from error


def _pairs(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value
