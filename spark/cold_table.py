"""read_cold: one call for a table of messages, by either way of fetching.

    engine="direct"   the data source: tasks fetch ranges by the project's own S3 client
    engine="s3a"      the JVM's s3a connector fetches whole objects (`binaryFile`), tasks decode them (`mapInArrow`);
                      catalogs and indexes are read by the driver through Hadoop's file system

Both run the same plan and the same decoder, and give equal rows. With "s3a" all s3a settings of the session hold:
its credential providers, delegation tokens, proxies and audit. There is no pruning within objects, and the plan is
made once, with the table: every action gives the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError
from thermocline.spark.access.blocking_store import BlockingStore, loop_of_process
from thermocline.spark.access.hadoop_options import configure
from thermocline.spark.access.hadoop_store import HadoopObjectStore
from thermocline.spark.access.store_options import HADOOP_PREFIX, StoreOptions
from thermocline.spark.bodies.body_columns import BodyOptions, body_options_from
from thermocline.spark.bodies.body_reader import BodyBatches, WithBodies, options_with_value
from thermocline.spark.condition import filters_of
from thermocline.spark.data_source import table_schema
from thermocline.spark.metrics.collector import active_options
from thermocline.spark.metrics.sending import send_report
from thermocline.spark.plain_errors import plain_errors
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.losses import MAY_HAVE_GONE, object_gone_error
from thermocline.spark.reading.pruning_filters import filters_text
from thermocline.spark.reading.read_plan import ReadPlan, SegmentSlice
from thermocline.spark.reading.source_options import ReadOptions, batch_options_from
from thermocline.spark.reading.whole_objects import DecodeObjects
from thermocline.tiered.objects import masked_url

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

logger = logging.getLogger(__name__)

_PATTERN_CHARACTERS = frozenset("*?[]{}\\")
_URL_CHARACTERS = frozenset("#%")

Engine = Literal["direct", "s3a"]
ENGINES = ("direct", "s3a")
BINARY_FILE_BYTES_SETTING = "spark.sql.sources.binaryFile.maxLength"
OBJECT_BYTES_MAX = 1 << 30
"""Of an object that is one row: Spark and Arrow hold several copies of it, each in one array of less than 2 GiB."""


def read_cold(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    where: str | Column | None = None,
    engine: Engine = "direct",
    **options: str,
) -> DataFrame:
    """The messages of `topic` (one or several, comma separated) under `url`; `options` are those of the data source.

    `where`: a condition on the columns that are read. What it rules out by topic, broker, queue, offset, time, tag or
    key is not fetched; the rows are those of `.where(condition)`.

    Raises:
        InvalidRequestError: An option is wrong, a topic is not there, an object is too large for the engine.
        UnavailableError: The store gave no answer, or refused.
    """
    if engine not in ENGINES:
        raise InvalidRequestError(f"{engine!r} is none of {', '.join(ENGINES)}", option="engine")
    if where is None:
        return load_cold(spark, url, topic, engine, options)
    filters = filters_of(spark, where, table_schema({**options, "path": url, "topic": topic}))
    return load_cold(spark, url, topic, engine, {**options, "where": filters_text(filters)}).where(where)


def load_cold(spark: SparkSession, url: str, topic: str, engine: Engine, options: Mapping[str, str]) -> DataFrame:
    """The table by options alone; errors as for read_cold."""
    if engine == "direct":
        return configure(spark, url).option("topic", topic).options(**options).load(url)
    check_s3a_options(options)
    given = {**active_options(), **options, "path": s3a_url(url), "topic": topic}
    bodies, schema = body_options_from(given), table_schema(given)
    checked = batch_options_from(given if bodies is None else options_with_value(given))
    stores: dict[str, BlockingStore] = {}

    def open_store(at: str, _options: StoreOptions) -> BlockingStore:
        if at not in stores:
            stores[at] = BlockingStore(HadoopObjectStore(spark, at), loop_of_process())
        return stores[at]

    with plain_errors():
        plan = resolve_plan(checked, now_ms=wall_clock_ms(), open_store=open_store)
    slices = _by_path(plan, stores)
    _check_sizes(spark, plan)
    if checked.metrics_address is not None:
        report = {"kind": "plan", "engine": "s3a", "tasks": len(slices), **asdict(plan.counts)}
        send_report(checked.metrics_address, report)
    return _table(spark, checked, slices, stores, schema=schema, bodies=bodies)


def _table(
    spark: SparkSession,
    options: ReadOptions,
    slices: dict[str, tuple[SegmentSlice, ...]],
    stores: Mapping[str, BlockingStore],
    *,
    schema: str,
    bodies: BodyOptions | None,
) -> DataFrame:
    """The lazy table over the objects that are there."""
    from pyspark.errors import AnalysisException

    empty = spark.createDataFrame([], schema)
    if not slices:
        return empty
    try:
        # With failOnDataLoss=false Spark skips an object that is deleted between plan and action, too.
        reader = spark.read.option("ignoreMissingFiles", str(not options.fail_on_data_loss).lower())
        objects = reader.format("binaryFile").load(list(slices))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        gone = _missing(slices, stores)
        if not gone:
            raise
        first = slices[gone[0]][0]
        if options.fail_on_data_loss:
            raise object_gone_error(first, MAY_HAVE_GONE) from None
        _report_missing(options, [part for path in gone for part in slices[path]])
        there = {path: of for path, of in slices.items() if path not in gone}
        return _table(spark, options, there, stores, schema=schema, bodies=bodies)
    # What the tasks need of a store is in their hands; secrets stay on the driver.
    decode = DecodeObjects(options=replace(options, store=StoreOptions()), slices=slices)
    rows = decode if bodies is None else WithBodies(decode, BodyBatches.of(bodies, empty.schema))
    return objects.select("path", "content").mapInArrow(rows, schema)


def _by_path(plan: ReadPlan, stores: Mapping[str, BlockingStore]) -> dict[str, tuple[SegmentSlice, ...]]:
    """The plan's slices by the path of their object, as Spark spells it."""
    by_object: dict[tuple[str, str], list[SegmentSlice]] = {}
    for part in (part for task in plan.tasks for part in task):
        by_object.setdefault((part.source.url, part.log.key), []).append(part)
    prefixes: dict[str, str] = {}
    for url, key in by_object:
        if url not in prefixes:
            store = stores[url].store
            assert isinstance(store, HadoopObjectStore)
            prefixes[url] = store.path_of(key)[: -len(key)]
    return {f"{prefixes[url]}{key}": tuple(parts) for (url, key), parts in by_object.items()}


def _check_sizes(spark: SparkSession, plan: ReadPlan) -> None:
    """InvalidRequestError when an object is more than a `binaryFile` row takes."""
    limit = min(int(spark.conf.get(BINARY_FILE_BYTES_SETTING) or 0), OBJECT_BYTES_MAX)
    for part in (part for task in plan.tasks for part in task):
        size_bytes = plan.object_bytes.get((part.source.root, part.log.key), part.log.end)
        if size_bytes > limit:
            raise InvalidRequestError(
                'an object is larger than engine="s3a" reads as one row; read with engine="direct", or raise '
                f"{BINARY_FILE_BYTES_SETTING} where that is the limit",
                object=part.log.key,
                object_bytes=size_bytes,
                object_bytes_max=limit,
            )


def _missing(slices: Mapping[str, tuple[SegmentSlice, ...]], stores: Mapping[str, BlockingStore]) -> list[str]:
    """The paths whose objects are not there."""
    gone: list[str] = []
    for path, parts in slices.items():
        store = stores[parts[0].source.url]
        try:
            store.run(store.store.head(parts[0].log.key))
        except ObjectNotFoundError:
            gone.append(path)
    return gone


def _report_missing(options: ReadOptions, parts: list[SegmentSlice]) -> None:
    """Log and report the messages that the table will not contain."""
    missing = 0
    for part in parts:
        missing += part.end_offset - part.start_offset
        logger.warning(
            "messages left out, their object is gone object=%s topic=%s queue_id=%d start_offset=%d end_offset=%d",
            *(part.log.key, part.topic, part.queue_id, part.start_offset, part.end_offset),
        )
    if options.metrics_address is not None:
        report = {"kind": "loss", "objects_missing": len(parts), "messages_missing": missing}
        send_report(options.metrics_address, report)


def check_s3a_options(options: Mapping[str, str]) -> None:
    """InvalidRequestError for options that would reach the bucket another way than the session does."""
    refused = [name for name in options if name.lower().startswith(("s3.", HADOOP_PREFIX))]
    if refused:
        raise InvalidRequestError('with engine="s3a" the session\'s fs.s3a.* settings count alone', option=refused[0])


def s3a_url(url: str) -> str:
    """The URL as Hadoop opens it, which takes %20 for what it says; InvalidRequestError for what only the direct engine
    understands."""
    parts = urlsplit(url)
    if parts.query:
        raise InvalidRequestError(
            'with engine="s3a" the endpoint is fs.s3a.endpoint, not part of the URL', url=masked_url(url)
        )
    path = unquote(parts.path)
    if not _PATTERN_CHARACTERS.isdisjoint(url + path):
        raise InvalidRequestError(
            'with engine="s3a" Spark would take this URL for a pattern of names', url=masked_url(url)
        )
    if parts.fragment or not _URL_CHARACTERS.isdisjoint(path):
        raise InvalidRequestError('with engine="s3a" a path without # and % is read', url=masked_url(url))
    return parts._replace(scheme="s3a" if parts.scheme == "s3" else parts.scheme, path=path).geturl()
