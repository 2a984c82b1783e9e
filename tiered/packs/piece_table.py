"""PieceTable: the queues and offsets that each piece of a pack holds, small enough for the ledger.

One zstd frame around columns, each as byte planes (plane k: byte k, the lowest first, of every number):

    of p pieces, in the order of the pack's `topics`
        8 planes   incarnation, u64          8 planes   record bytes, u64
        8 planes   stored bytes, u64         2 planes   queues, u16
    of all their queues, piece by piece, by rising queue id
        4 planes   queue id, u32
        8 planes   start offset, u64         4 planes   records, u32

About 5 bytes a queue: planes that are nearly constant cost nearly nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.objects import LedgerCorruptError, decompress_frame
from thermocline.tiered.packs.piece_times import PieceTimes
from thermocline.tiered.segments import from_planes, to_planes

Numbers = npt.NDArray[np.int64]

TABLE_BYTES_MAX = 64 << 20
_PIECE_COLUMNS = ("<u8", "<u8", "<u8", "<u2")
_QUEUE_COLUMNS = ("<u4", "<u8", "<u4")
_PIECE_BYTES = sum(np.dtype(each).itemsize for each in _PIECE_COLUMNS)
_QUEUE_BYTES = sum(np.dtype(each).itemsize for each in _QUEUE_COLUMNS)


class QueueRange(msgspec.Struct, frozen=True, gc=False):
    """Offsets [start_offset, end_offset) of one queue."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset


class PieceExtent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The ledger's description of one piece."""

    incarnation: int
    raw_bytes: int
    stored_bytes: int
    queues: tuple[QueueRange, ...]


class PieceTable:
    """The decoded columns; piece `i` by `piece(i)`, and all of them at once by `pieces()`, which is far quicker."""

    __slots__ = ("_incarnations", "_queue_ids", "_queue_starts", "_raw", "_records", "_starts", "_stored", "times")

    def __init__(self, pieces: Sequence[Numbers], queues: Sequence[Numbers], times: PieceTimes | None = None) -> None:
        self.times = times
        """Bounds of each piece's store times, if the ledger has them."""
        self._incarnations, self._raw, self._stored, counts = pieces
        self._queue_ids, self._starts, self._records = queues
        self._queue_starts: Numbers = np.concatenate(([0], np.cumsum(counts)))

    def __len__(self) -> int:
        return len(self._raw)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of the table."""
        times_bytes = self.times.memory_bytes if self.times is not None else 0
        return 32 * len(self._raw) + 24 * len(self._queue_ids) + times_bytes + 500

    def incarnation(self, index: int) -> int:
        """The incarnation of the topic whose piece this is."""
        return int(self._incarnations[index])

    def record_counts(self) -> list[int]:
        """Records of each piece."""
        sums: Numbers = np.concatenate(([0], np.cumsum(self._records)))
        counts: list[int] = (sums[self._queue_starts[1:]] - sums[self._queue_starts[:-1]]).tolist()
        return counts

    def piece(self, index: int) -> PieceExtent:
        """Everything about one piece."""
        part = slice(int(self._queue_starts[index]), int(self._queue_starts[index + 1]))
        starts = self._starts[part].tolist()
        ids, counts = self._queue_ids[part].tolist(), self._records[part].tolist()
        return PieceExtent(
            incarnation=int(self._incarnations[index]),
            raw_bytes=int(self._raw[index]),
            stored_bytes=int(self._stored[index]),
            queues=tuple(map(QueueRange, ids, starts, (start + n for start, n in zip(starts, counts, strict=True)))),
        )

    def pieces(self) -> list[PieceExtent]:
        """Every piece."""
        queues = list(
            map(QueueRange, self._queue_ids.tolist(), self._starts.tolist(), (self._starts + self._records).tolist())
        )
        bounds = self._queue_starts.tolist()
        rows = zip(self._incarnations.tolist(), self._raw.tolist(), self._stored.tolist(), strict=True)
        return [
            PieceExtent(
                incarnation=incarnation,
                raw_bytes=raw_bytes,
                stored_bytes=stored_bytes,
                queues=tuple(queues[bounds[index] : bounds[index + 1]]),
            )
            for index, (incarnation, raw_bytes, stored_bytes) in enumerate(rows)
        ]


def encode_piece_table(pieces: Sequence[PieceExtent]) -> bytes:
    """The bytes that the ledger holds."""
    queues = [queue for piece in pieces for queue in piece.queues]
    columns: list[tuple[str, list[int]]] = [
        ("<u8", [piece.incarnation for piece in pieces]),
        ("<u8", [piece.raw_bytes for piece in pieces]),
        ("<u8", [piece.stored_bytes for piece in pieces]),
        ("<u2", [len(piece.queues) for piece in pieces]),
        ("<u4", [queue.queue_id for queue in queues]),
        ("<u8", [queue.start_offset for queue in queues]),
        ("<u4", [queue.end_offset - queue.start_offset for queue in queues]),
    ]
    content = b"".join(to_planes(np.array(values, dtype)) for dtype, values in columns)
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(content)


def decode_piece_table(data: bytes, *, piece_count: int, times: PieceTimes | None = None) -> PieceTable:
    """The table of a pack of so many pieces. LedgerCorruptError when it is none."""
    try:
        size_bytes = zstandard.frame_content_size(data)
        if not 0 < size_bytes <= TABLE_BYTES_MAX:
            raise LedgerCorruptError("impossible size of a piece table", size_bytes=size_bytes)
        content = decompress_frame(data)
    except zstandard.ZstdError as error:
        raise LedgerCorruptError("a piece table does not decompress", size_bytes=len(data)) from error
    queue_count, rest = divmod(len(content) - piece_count * _PIECE_BYTES, _QUEUE_BYTES)
    if rest or queue_count < 0:
        raise LedgerCorruptError("a piece table's size is not the sum of its columns", size_bytes=len(content))
    position = 0
    columns: list[Numbers] = []
    for dtype, count in itertools.chain(
        zip(_PIECE_COLUMNS, itertools.repeat(piece_count)), zip(_QUEUE_COLUMNS, itertools.repeat(queue_count))
    ):
        columns.append(from_planes(content, dtype, count, position).astype(np.int64))
        position += np.dtype(dtype).itemsize * count
    pieces, queues = columns[: len(_PIECE_COLUMNS)], columns[len(_PIECE_COLUMNS) :]
    if int(pieces[-1].sum()) != queue_count:
        raise LedgerCorruptError("a piece table's queues do not add up", queue_count=queue_count)
    return PieceTable(pieces, queues, times)
