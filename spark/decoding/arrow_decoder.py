"""ArrowDecoder: concatenated CommitLog records in, one Arrow record batch of the chosen columns out.

The common path runs no Python per record (`record_heads`, `property_columns`, `arrow_gather`). Rows that need more
pay for themselves only:
  - a compressed body (sysFlag 0x1) is decompressed by itself; its row then shows sysFlag without 0x1, as the official
    clients do, unless `decompress_body` is off;
  - an inner batch (sysFlag 0x40 and 0x80) is first rewritten as the records it stands for (`inner_batch`);
  - an IPv6 host is written out by itself; IPv4 hosts are few, so each distinct one is written once;
  - irregular properties are parsed row by row.

A body may not decompress as its producer has sent it, which is no damage of the store: `decode_bounded` and
`decode_parts` leave that message alone out, if the caller says so.

Bodies may grow a thousandfold when they are decompressed. Rows whose bodies do not fit BODIES_BYTES_MAX together are
given as several batches, by `decode_parts`.

Selection comes before decoding: rows outside the offset and time window, or with another tag or key, are dropped by
their heads, tags and keys, and their bodies are never copied. Body checksums are not computed: cold frames carry their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_record import POSITION_BORN_HOST, POSITION_STORE_HOST, decode_host
from thermocline.remoting.records.record_heads import (
    Bytes,
    Mask,
    RecordHeads,
    read_heads,
)
from thermocline.remoting.records.record_layout import HOST_V4_BYTES, HOST_V6_BYTES, HOST_V6_MORE_BYTES
from thermocline.remoting.records.sys_flag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6, compression_type
from thermocline.spark.decoding.arrow_gather import gather_pieces
from thermocline.spark.decoding.inner_batch import inner_batches, unwrap_records
from thermocline.spark.decoding.key_words import rows_with_keys
from thermocline.spark.decoding.message_columns import DEFAULT_COLUMNS, arrow_schema
from thermocline.spark.decoding.offset_spans import OFFSET_MAX, OffsetSpans
from thermocline.spark.decoding.property_columns import PropertyColumns, read_properties

BODIES_BYTES_MAX = 256 << 20
"""Of the decompressed bodies of one batch, which are copied twice on their way into it."""
PART_BYTES_MAX = 64 << 20
INT64_MAX = 2**63 - 1
TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which Spark's timestamps have. A producer may send any number as its time; one outside is null:
by 1000 it may overflow, and a job that collects it in Python would fail."""

_PROPERTY_BY_COLUMN = {"key": "KEYS", "tag": "TAGS", "msgId": "UNIQ_KEY"}
_INTEGER_BY_COLUMN = {
    "queueId": ("queue_id", np.int32),
    "queueOffset": ("queue_offset", np.int64),
    "flag": ("flag", np.int32),
    "reconsumeTimes": ("reconsume_times", np.int32),
}
_TIME_BY_COLUMN = {"timestamp": "store_timestamp_ms", "bornTimestamp": "born_timestamp_ms"}
_COLUMNS_OF_PROPERTIES = frozenset(_PROPERTY_BY_COLUMN) | {"properties"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """Which rows of a frame count: half-open ranges of queue offset and store time, tags (None: any), keys (of each
    set at least one), and spans of offsets within the range (None: all of it)."""

    start_offset: QueueOffset = QUEUE_START
    end_offset: QueueOffset = OFFSET_MAX
    start_ms: int = 0
    end_ms: int = INT64_MAX
    tags: frozenset[str] | None = None
    keys: tuple[frozenset[str], ...] = ()
    spans: OffsetSpans | None = None


EVERY_ROW = RowSelection()


class BodiesTooLargeError(InvalidRequestError):
    """The decompressed bodies of these records are too large for one batch; `decode_parts` gives several."""


class BadBodyError(CorruptDataError):
    """A compressed body does not decompress."""


OnBadBody: TypeAlias = Callable[[QueueOffset, BadBodyError], None]
"""Called for a message whose body does not decompress; the message is left out, unless this raises."""


class ArrowDecoder:
    """Decodes records of one broker into batches of one schema. Holds no state between calls; not tied to a thread."""

    __slots__ = ("_broker_name", "_columns", "_decompress_body", "schema")

    def __init__(
        self, columns: Sequence[str] = DEFAULT_COLUMNS, *, broker_name: str = "", decompress_body: bool = True
    ) -> None:
        self._columns = tuple(columns)
        self._broker_name = broker_name
        self._decompress_body = decompress_body
        self.schema = arrow_schema(self._columns)

    def decode(
        self, records: bytes | bytearray | memoryview | Bytes, selection: RowSelection = EVERY_ROW
    ) -> pa.RecordBatch:
        """Decode the whole of `records` and give the selected rows, in stored order.

        Raises:
            CorruptDataError: The bytes are not whole records.
            BadBodyError: A compressed body does not decompress.
            BodiesTooLargeError: Its bodies are too large for one batch.
        """
        return self.decode_heads(read_heads(records), selection)

    def decode_bounded(
        self,
        records: bytes | bytearray | memoryview | Bytes,
        selection: RowSelection = EVERY_ROW,
        *,
        on_bad_body: OnBadBody | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same in one batch, or in several where the bodies are too large for one. Raises CorruptDataError, and
        BadBodyError without `on_bad_body`."""
        heads = read_heads(records)
        try:
            batch = self.decode_heads(heads, selection)
        except (BodiesTooLargeError, BadBodyError):
            yield from self.decode_parts(heads, selection, on_bad_body=on_bad_body)
        else:
            yield batch

    def decode_parts(
        self, heads: RecordHeads, selection: RowSelection = EVERY_ROW, *, on_bad_body: OnBadBody | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The selected rows in batches with bodies of about PART_BYTES_MAX each; every compressed body is decompressed
        twice. Raises CorruptDataError before the first batch; so it does BadBodyError without `on_bad_body`."""
        if bool(inner_batches(heads).any()):
            heads = read_heads(unwrap_records(heads))
        heads, _ = self._select(heads, selection)
        sizes = heads.integers("body_bytes")
        whole: Mask = np.ones(len(heads), np.bool_)
        for row in self._compressed_rows(heads):
            try:
                sizes[row] = len(_decompressed(heads, row))
            except BadBodyError as error:
                if on_bad_body is None:
                    raise
                on_bad_body(QueueOffset(heads.head["queue_offset"][row]), error)
                whole[row] = False
        heads, sizes = heads.select(whole), sizes[whole]
        starts, part_bytes = [0], 0
        for row, size_bytes in enumerate(sizes.tolist()):
            if part_bytes and part_bytes + size_bytes > PART_BYTES_MAX:
                starts.append(row)
                part_bytes = 0
            part_bytes += size_bytes
        for start, end in pairwise([*starts, len(heads)]):
            yield self._batch(heads.select(np.arange(start, end)), None)

    def decode_heads(self, heads: RecordHeads, selection: RowSelection = EVERY_ROW) -> pa.RecordBatch:
        """The same for records whose heads the caller has read and looked at."""
        if bool(inner_batches(heads).any()):
            heads = read_heads(unwrap_records(heads))
        return self._batch(*self._select(heads, selection))

    def _batch(self, heads: RecordHeads, properties: PropertyColumns | None) -> pa.RecordBatch:
        """All of these rows."""
        if properties is None and not _COLUMNS_OF_PROPERTIES.isdisjoint(self._columns):
            properties = read_properties(heads)
        arrays = [self._column(name, heads, properties) for name in self._columns]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(heads), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _select(self, heads: RecordHeads, selection: RowSelection) -> tuple[RecordHeads, PropertyColumns | None]:
        """The selected rows, with their properties when all of them stayed and they had to be parsed anyway."""
        keep: Mask | None = None
        for field, start, end in (
            ("queue_offset", selection.start_offset, selection.end_offset),
            ("store_timestamp_ms", selection.start_ms, selection.end_ms),
        ):
            if start > 0 or end < INT64_MAX:
                values = heads.integers(field)
                inside = (values >= start) & (values < end)
                keep = inside if keep is None else keep & inside
        if selection.spans is not None:
            held = selection.spans.holds(heads.integers("queue_offset"))
            keep = held if keep is None else keep & held
        if keep is not None and not bool(keep.all()):
            heads = heads.select(keep)
        if selection.tags is None and not selection.keys:
            return heads, None
        properties = read_properties(heads)
        wanted: Mask = np.ones(len(heads), np.bool_)
        if selection.tags is not None:
            tags = pa.array(sorted(selection.tags), pa.string())
            wanted = pc.is_in(properties.column("TAGS"), tags).to_numpy(zero_copy_only=False)
        if selection.keys:
            wanted = wanted & rows_with_keys(properties.column("KEYS"), selection.keys)
        if bool(wanted.all()):
            return heads, properties
        return heads.select(wanted), None

    def _column(self, name: str, heads: RecordHeads, properties: PropertyColumns | None) -> pa.Array:
        if name in _INTEGER_BY_COLUMN:
            field, dtype = _INTEGER_BY_COLUMN[name]
            return pa.array(heads.head[field].astype(dtype))
        if name in _TIME_BY_COLUMN:
            times = heads.integers(_TIME_BY_COLUMN[name])
            outside: Mask = (times < TIME_MS_MIN) | (times > TIME_MS_MAX)
            microseconds = pa.array(times * 1_000, mask=outside if bool(outside.any()) else None)
            return microseconds.view(self.schema.field(name).type)
        if name in _COLUMNS_OF_PROPERTIES:
            assert properties is not None
            return properties.maps() if name == "properties" else properties.column(_PROPERTY_BY_COLUMN[name])
        match name:
            case "topic":
                return _topics(heads)
            case "brokerName":
                return pa.repeat(pa.scalar(self._broker_name, pa.string()), len(heads))
            case "value":
                return self._bodies(heads)
            case "sysFlag":
                sys_flags = heads.sys_flags
                return pa.array(sys_flags & ~COMPRESSED if self._decompress_body else sys_flags)
            case "bornHost":
                return _hosts(heads, "born_host", BORN_HOST_V6)
            case "storeHost":
                return _hosts(heads, "store_host", STORE_HOST_V6)
            case _:
                raise AssertionError(f"column {name} has no decoder")

    def _compressed_rows(self, heads: RecordHeads) -> list[int]:
        """The rows whose bodies are to be decompressed for the column `value`."""
        if not self._decompress_body or "value" not in self._columns:
            return []
        rows: list[int] = np.flatnonzero(
            ((heads.sys_flags & COMPRESSED) != 0) & (heads.head["body_bytes"] > 0)
        ).tolist()
        return rows

    def _bodies(self, heads: RecordHeads) -> pa.Array:
        """Bodies, each compressed one opened by itself and put back in its place."""
        lengths = heads.integers("body_bytes")
        rows = self._compressed_rows(heads)
        if not rows:
            return gather_pieces(heads.data, heads.body_starts, lengths, pa.binary())
        opened: list[bytes] = []
        opened_bytes = 0
        for row in rows:
            body = _decompressed(heads, row)
            opened_bytes += len(body)
            if opened and opened_bytes > BODIES_BYTES_MAX:
                raise BodiesTooLargeError("the decompressed bodies are too large for one batch")
            opened.append(body)
        compressed: Mask = np.zeros(len(heads), np.bool_)
        compressed[rows] = True
        plain = gather_pieces(heads.data, heads.body_starts[~compressed], lengths[~compressed], pa.binary())
        place = np.empty(len(heads), np.int64)
        place[~compressed] = np.arange(len(plain))
        place[compressed] = np.arange(len(plain), len(heads))
        return pa.concat_arrays([plain, pa.array(opened, pa.binary())]).take(pa.array(place))


def _decompressed(heads: RecordHeads, row: int) -> bytes:
    """The body of one row; BadBodyError names its offset."""
    start = int(heads.body_starts[row])
    body = bytes(heads.data.data[start : start + int(heads.head["body_bytes"][row])])
    try:
        return decompress(body, compression_type(heads.sys_flags[row]))
    except CorruptDataError as error:
        raise BadBodyError(
            "a compressed body does not decompress",
            queue_offset=int(heads.head["queue_offset"][row]),
            reason=str(error),
        ) from error


def _topics(heads: RecordHeads) -> pa.Array:
    """Topic names; a frame holds one topic, so almost always one value for all rows."""
    names = gather_pieces(heads.data, heads.topic_starts, heads.topic_bytes, pa.binary())
    if len(names) and bool(pc.all(pc.equal(names, names[0])).as_py()):
        return pa.repeat(pa.scalar(names[0].as_py().decode("utf-8", "replace"), pa.string()), len(names))
    return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _hosts(heads: RecordHeads, field: str, v6_flag: int) -> pa.Array:
    """Hosts as `address:port`, IPv6 ones as `[address]:port`."""
    words: npt.NDArray[np.uint64] = heads.head[field].astype(np.uint64)
    is_v6: Mask = (heads.sys_flags & v6_flag) != 0
    if len(words) and bool((words == words[0]).all()) and not bool(is_v6.any()):
        return pa.repeat(pa.scalar(_host_v4(int(words[0])), pa.string()), len(words))  # of the store host nearly always
    distinct, place = np.unique(words[~is_v6], return_inverse=True)
    names = [_host_v4(int(word)) for word in distinct]
    places = np.empty(len(heads), np.int64)
    places[~is_v6] = place
    rows_v6 = np.flatnonzero(is_v6).tolist()
    for row in rows_v6:
        position = int(heads.starts[row]) + POSITION_BORN_HOST
        if v6_flag == STORE_HOST_V6:
            born_is_v6 = bool(int(heads.head["sys_flag"][row]) & BORN_HOST_V6)
            moved_bytes = HOST_V6_MORE_BYTES if born_is_v6 else 0
            position = int(heads.starts[row]) + POSITION_STORE_HOST + moved_bytes
        address, port = decode_host(heads.data[position : position + HOST_V6_BYTES].tobytes())
        places[row] = len(names)
        names.append(f"[{address}]:{port}")
    return pa.array(names, pa.string()).take(pa.array(places))


def _host_v4(word: int) -> str:
    address, port = decode_host(word.to_bytes(HOST_V4_BYTES, "big"))
    return f"{address}:{port}"
