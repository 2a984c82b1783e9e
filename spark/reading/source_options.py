"""ReadOptions: the options of a read, checked once and parsed.

Names are matched without regard to case, as Spark does. Times are on the store time, ranges are half-open.

    path, paths            s3a:// | s3:// | file:// of a cold tier: its prefix, a cluster in it, or a broker in it
    topic (or subscribe)   one topic or several, comma separated
    queues                 broker-a:0,broker-a:1 or 0,1 (of every broker); all when absent
    startingOffsets        earliest | latest | {"orders": {"broker-a:0": 17, "broker-a:1": -2}}
    endingOffsets          the same, exclusive; -2 is earliest, -1 latest; a queue that the JSON does not name is whole
    startingTimestamp      milliseconds or ISO 8601 (UTC when it names no zone), inclusive
    endingTimestamp        the same, exclusive
    tags                   A || B, exact; * is every message, tagged or not
    keys                   K1 K2, parted by spaces as in KEYS: messages that have at least one of these keys, exact
    where                  what a condition rules out; `read_cold` writes it
    columns, includeProperties, decompressBody                                    see message_columns, arrow_decoder
    failOnDataLoss         true: a requested offset that is not there any more (or yet) fails the read
    onCorruptFrame         fail | skip: what a frame that does not decompress or decode does
    maxPartitionBytes      raw bytes of records in one task (256m)
    fetchBytes             stored bytes in one request (8m)
    rowsPerBatch           rows in one Arrow batch (16384)
    snapshotVersion        catalog version to read: a number, or {"cluster/broker-a": 41} for several brokers
    snapshotTimestamp      the moment at which time to live is judged; now when absent, or when it is past
    metrics                where tasks report what they did: see metrics/; set by `task_metrics`
    snapshotPin            from `thermocline.spark.open`: the pin that holds the version, and what had expired then
    s3.*                   how to reach the bucket: see store_options

Options of streams and of bodies may stand beside them: Spark asks for a table's columns in the same way for both. A
batch read refuses those of streams (`batch_options_from`); an unknown name is refused everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.access.store_options import StoreOptions, is_store_option, store_options
from thermocline.spark.decoding.arrow_decoder import INT64_MAX
from thermocline.spark.decoding.key_words import words_of
from thermocline.spark.option_names import check_option_names, known_options
from thermocline.spark.reading.pruning_filters import PruningFilters, parse_filters

EARLIEST = QueueOffset(-2)
LATEST = QueueOffset(-1)

PARTITION_BYTES_DEFAULT = 256 << 20
FETCH_BYTES_DEFAULT = 8 << 20
BATCH_ROWS_DEFAULT = 16_384

NAMES = (
    *("path", "paths", "topic", "subscribe", "queues", "startingOffsets", "endingOffsets"),
    *("startingTimestamp", "endingTimestamp", "tags", "keys", "where", "columns", "includeProperties"),
    *("decompressBody", "failOnDataLoss", "onCorruptFrame", "maxPartitionBytes", "fetchBytes", "rowsPerBatch"),
    *("snapshotVersion", "snapshotTimestamp", "snapshotPin", "metrics"),
)
STREAM_NAMES = ("namesrvAddr", "maxBytesPerTrigger", "maxOffsetsPerTrigger", "brokerTimeoutMs")
NAMES_BESIDE = (*STREAM_NAMES, "bodyFormat", "bodySchema", "bodyMessage")
_KNOWN = known_options((*NAMES, *NAMES_BESIDE))
_INSTEAD = {
    "pushdown": "pass the condition to thermocline.spark.read_cold(where=...)",
    "engine": 'the engine is an argument: thermocline.spark.read_cold(engine="s3a")',
    "client": "there is one S3 client",
    "coldmaxoffsetspertrigger": "maxOffsetsPerTrigger bounds the cold part and the live one",
}

_SIZE = re.compile(r"(\d{1,19})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TRUTH = {"true": True, "false": False}

QueueOffsets: TypeAlias = Mapping[tuple[str, "QueueName"], QueueOffset]


@dataclass(frozen=True, slots=True, order=True)
class QueueName:
    """A queue as options and reports spell it: `broker-a:0`; without a broker it means that queue of every broker."""

    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker_name}:{self.queue_id}" if self.broker_name else str(self.queue_id)

    @classmethod
    def parse(cls, text: str, *, option: str) -> QueueName:
        """From `broker-a:0`, `broker-a/0` or `0`; InvalidRequestError otherwise."""
        broker_name, _, queue_id = text.strip().replace("/", ":").rpartition(":")
        if not queue_id.isdecimal():
            raise InvalidRequestError(f"{text.strip()!r} is no queue; write broker-a:0 or 0", option=option)
        return cls(broker_name, int(queue_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """Where to start or end in every queue: a default (EARLIEST or LATEST), and offsets of single queues."""

    default: QueueOffset
    offsets: QueueOffsets

    def offset_of(self, topic: str, queue: QueueName) -> QueueOffset:
        """The offset given for this queue, by its full name first; may be EARLIEST or LATEST."""
        named = self.offsets.get((topic, queue))
        if named is None:
            named = self.offsets.get((topic, QueueName("", queue.queue_id)), self.default)
        return named


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPin:
    """A pin of that id holds the version in every broker's part, and messages stored before the cuts had expired; of
    `empty_topics` nothing was there."""

    pin_id: str
    cuts_ms: Mapping[str, Mapping[str, int]]  # cluster/broker -> topic -> store time
    empty_topics: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> SnapshotPin:
        """From `{"id": ..., "cuts": {"cluster/broker": {"orders": ms}}}`; InvalidRequestError otherwise."""
        value = _json_object(text, option="snapshotPin")
        pin_id, cuts_ms, empty = value.get("id"), value.get("cuts"), value.get("empty", [])
        if not isinstance(pin_id, str) or not isinstance(cuts_ms, dict) or not isinstance(empty, list):
            raise InvalidRequestError("not what thermocline.spark.open wrote", option="snapshotPin")
        return cls(pin_id=pin_id, cuts_ms=cuts_ms, empty_topics=tuple(empty))

    def __str__(self) -> str:
        return json.dumps({"id": self.pin_id, "cuts": self.cuts_ms, "empty": self.empty_topics}, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """See the module's header. Small and picklable: it travels to every task."""

    urls: tuple[str, ...] = field(repr=False)
    topics: tuple[str, ...]
    queues: frozenset[QueueName] | None
    starting_offsets: OffsetBounds
    ending_offsets: OffsetBounds
    starting_ms: int | None
    ending_ms: int | None
    tags: frozenset[str] | None
    keys: frozenset[str] | None
    filters: PruningFilters
    columns: str | None
    include_properties: bool
    decompress_body: bool
    fail_on_data_loss: bool
    skip_corrupt_frames: bool
    partition_bytes_max: int
    fetch_bytes: int
    batch_rows_max: int
    snapshot_versions: Mapping[str, int]  # cluster/broker -> version; "" for the only broker there is
    snapshot_ms: int | None
    metrics_address: str | None
    snapshot_pin: SnapshotPin | None
    store: StoreOptions

    def wants_queue(self, queue: QueueName) -> bool:
        """Whether the option `queues` leaves this queue in."""
        return self.queues is None or queue in self.queues or QueueName("", queue.queue_id) in self.queues


def batch_options_from(options: Mapping[str, str]) -> ReadOptions:
    """Check all options of one batch read.

    Raises:
        InvalidRequestError: As for `read_options_from`; also an option of streams, which a batch read would not heed.
    """
    of_streams = known_options(STREAM_NAMES)
    for name in options:
        if name.lower() in of_streams:
            raise InvalidRequestError(
                "a batch read has no such option; it reads the cold tier alone and plans everything at once."
                " thermocline.spark.read_stream reads what the brokers hold as well",
                option=name,
            )
    return read_options_from(options)


def read_options_from(options: Mapping[str, str]) -> ReadOptions:
    """Check all options of one read, batch or stream.

    Raises:
        InvalidRequestError: An option is missing or its value is wrong; the message names it.
    """
    check_option_names(options, _KNOWN, advice=_INSTEAD, is_known_besides=is_store_option)
    words = _Words({name.lower(): value for name, value in options.items()})
    ending = words.offsets("endingOffsets", default=LATEST)
    starting_ms, ending_ms = words.time_ms("startingTimestamp"), words.time_ms("endingTimestamp")
    return ReadOptions(
        urls=_urls(words),
        topics=_topics(words),
        queues=_queues(words.text("queues")),
        starting_offsets=words.offsets("startingOffsets", default=EARLIEST),
        ending_offsets=ending,
        starting_ms=starting_ms,
        ending_ms=ending_ms,
        tags=parse_tags(words.text("tags")),
        keys=_keys(words.text("keys")),
        filters=parse_filters(words.text("where")),
        columns=words.text("columns"),
        include_properties=words.truth("includeProperties", default=False),
        decompress_body=words.truth("decompressBody", default=True),
        fail_on_data_loss=words.truth("failOnDataLoss", default=True),
        skip_corrupt_frames=words.choice("onCorruptFrame", ("fail", "skip")) == "skip",
        partition_bytes_max=words.size_bytes("maxPartitionBytes", default=PARTITION_BYTES_DEFAULT),
        fetch_bytes=words.size_bytes("fetchBytes", default=FETCH_BYTES_DEFAULT),
        batch_rows_max=words.size_bytes("rowsPerBatch", default=BATCH_ROWS_DEFAULT),
        snapshot_versions=_snapshot_versions(words.text("snapshotVersion")),
        snapshot_ms=words.time_ms("snapshotTimestamp"),
        metrics_address=words.text("metrics"),
        snapshot_pin=None if (pin := words.text("snapshotPin")) is None else SnapshotPin.parse(pin),
        store=store_options(options),
    )


def parse_tags(text: str | None) -> frozenset[str] | None:
    """The tags of `A || B`; None (every message) for `*` and for nothing at all."""
    if text is None or text.strip() in ("", "*"):
        return None
    tags = frozenset(tag.strip() for tag in text.split("||"))
    if "" in tags:
        raise InvalidRequestError(f"{text!r} is no tag expression; write A || B", option="tags")
    return tags


def parse_time_ms(text: str, *, option: str) -> int:
    """Milliseconds since 1970 from a number of them or from ISO 8601; InvalidRequestError otherwise."""
    if re.fullmatch(r"-?\d{1,19}", text) and abs(int(text)) <= INT64_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is neither milliseconds nor an ISO 8601 time", option=option) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # In whole microseconds: a float would round a millisecond away.
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000 + elapsed.microseconds // 1_000


def parse_size_bytes(text: str, *, option: str) -> int:
    """Bytes from `8388608` or `8m`; InvalidRequestError otherwise."""
    match = _SIZE.fullmatch(text.strip())
    size_bytes = 0 if match is None else int(match[1]) * _SIZE_UNITS[match[2].lower()]
    if not 0 < size_bytes <= INT64_MAX:
        raise InvalidRequestError(f"{text!r} is no size; write 8388608 or 8m", option=option)
    return size_bytes


class _Words:
    """Option values by lower-cased name, read with their types."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def truth(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _TRUTH:
            raise InvalidRequestError(f"{text!r} is neither true nor false", option=name)
        return _TRUTH[text.strip().lower()]

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = (self.text(name) or choices[0]).strip().lower()
        if text not in choices:
            raise InvalidRequestError(f"{text!r} is none of {', '.join(choices)}", option=name)
        return text

    def size_bytes(self, name: str, *, default: int) -> int:
        text = self.text(name)
        return default if text is None else parse_size_bytes(text, option=name)

    def time_ms(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_time_ms(text.strip(), option=name)

    def offsets(self, name: str, *, default: QueueOffset) -> OffsetBounds:
        text = (self.text(name) or "").strip()
        if text.lower() in ("", "earliest", "latest"):
            return OffsetBounds(default={"earliest": EARLIEST, "latest": LATEST}.get(text.lower(), default), offsets={})
        table = _json_object(text, option=name)
        offsets: dict[tuple[str, QueueName], QueueOffset] = {}
        for topic, queues in table.items():
            if not isinstance(queues, dict):
                raise InvalidRequestError(f"topic {topic!r} needs an object of queues", option=name)
            for queue, offset in queues.items():
                if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
                    raise InvalidRequestError(f"{offset!r} is no queue offset", option=name, topic=topic, queue=queue)
                offsets[(topic, QueueName.parse(queue, option=name))] = QueueOffset(offset)
        return OffsetBounds(default=default, offsets=offsets)


def _urls(words: _Words) -> tuple[str, ...]:
    paths = words.text("paths")
    urls: list[str] = []
    if paths is not None:
        try:
            listed = json.loads(paths)
        except ValueError:
            listed = None
        urls = [str(url).strip() for url in (listed if isinstance(listed, list) else paths.split(","))]
    path = words.text("path")
    if path is not None and path not in urls:
        urls.insert(0, path.strip())
    if not urls or "" in urls:
        raise InvalidRequestError("name the cold tier: .load('s3a://bucket/prefix') or .load('file:///directory')")
    return tuple(urls)


def _topics(words: _Words) -> tuple[str, ...]:
    text = words.text("topic") or words.text("subscribe") or ""
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",")))
    if not all(topics):
        raise InvalidRequestError("name the topic to read: .option('topic', 'orders')", option="topic")
    return topics


def _queues(text: str | None) -> frozenset[QueueName] | None:
    if text is None:
        return None
    return frozenset(QueueName.parse(word, option="queues") for word in text.split(","))


def _keys(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    keys = frozenset(words_of(text))
    if not keys:
        raise InvalidRequestError(f"{text!r} names no key; write K1 K2", option="keys")
    return keys


def _snapshot_versions(text: str | None) -> dict[str, int]:
    if text is None:
        return {}
    if text.strip().isdecimal():
        return {"": int(text)}
    versions = _json_object(text, option="snapshotVersion")
    for place, version in versions.items():
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise InvalidRequestError(f"{version!r} is no catalog version", option="snapshotVersion", broker=place)
    return versions


def _json_object(text: str, *, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError("not understood, and no JSON either", option=option) from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the JSON must be an object", option=option)
    return value
