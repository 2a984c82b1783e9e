"""Losses: what a read does about damaged frames and objects that are gone: fail, or leave out and count.

onCorruptFrame=fail     a damaged frame, or the damaged footer of a segment, fails the read; so does a message whose
                        compressed body does not decompress, as its producer has sent it
               skip     its messages, or this one, are left out, counted, and named in a warning
failOnDataLoss=true     an object of the plan that is gone fails the read, by the reason that the ledger gives
               false    its messages are left out, counted, and named in a warning
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from thermocline.remoting.errors import CorruptDataError, MQError, ObjectNotFoundError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.decoding.arrow_decoder import BadBodyError
from thermocline.spark.metrics.task_counts import TaskCounts
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import ReadOptions
from thermocline.spark.reading.wanted_frame import WantedFrame, part_names, slice_names
from thermocline.tiered.ledger import open_catalog
from thermocline.tiered.objects import FormatTooNewError
from thermocline.tiered.segments import BrokerKeys, SegmentEntry

logger = logging.getLogger(__name__)

MAY_HAVE_GONE = "its messages have expired or were merged into another since"


class Losses:
    """Of one task. `store_of` gives the store of a slice, to ask the ledger why an object is gone."""

    def __init__(
        self, options: ReadOptions, *, counts: TaskCounts, store_of: Callable[[SegmentSlice], BlockingStore]
    ) -> None:
        self._options = options
        self._counts = counts
        self._store_of = store_of

    def frame_damaged(self, frame: WantedFrame, error: CorruptDataError) -> None:
        """Go on without a damaged frame, or raise CorruptDataError."""
        if not self._options.skip_corrupt_frames:
            raise CorruptDataError(
                "a frame of the cold tier is damaged; onCorruptFrame=skip leaves its messages out",
                **frame.names(),
                reason=str(error),
            ) from error
        self._counts.frames_skipped += 1
        self._counts.messages_skipped += frame.wanted_offsets
        logger.warning(
            "damaged frame skipped object=%s frame=%d topic=%s queue_id=%d start_offset=%d end_offset=%d reason=%s",
            *(frame.part.log.key, frame.info.index, frame.part.topic, frame.part.queue_id),
            *(frame.info.start_offset, frame.info.end_offset, error),
        )

    def body_damaged(self, frame: WantedFrame, queue_offset: QueueOffset, error: BadBodyError) -> None:
        """Go on without a message whose body does not decompress, or raise BadBodyError."""
        skip_bad_body(self._options, part_names(frame.part), queue_offset, error)
        self._counts.messages_skipped += 1

    def footer_damaged(self, part: SegmentSlice, error: CorruptDataError) -> None:
        """Go on without the frames of a segment whose footer cannot be read, or raise CorruptDataError; of one that is
        of a later format than this release reads, raise FormatTooNewError in any case: it is not damaged."""
        if isinstance(error, FormatTooNewError):
            raise FormatTooNewError(error.message, **error.context, **slice_names(part)) from error
        if not self._options.skip_corrupt_frames:
            raise CorruptDataError(
                "the footer of a cold segment is damaged; onCorruptFrame=skip leaves its messages out",
                **slice_names(part),
                reason=str(error),
            ) from error
        self._counts.frames_skipped += 1
        self._counts.messages_skipped += part.end_offset - part.start_offset
        logger.warning(
            "segment with a damaged footer skipped object=%s topic=%s queue_id=%d start_offset=%d end_offset=%d "
            "reason=%s",
            *(part.log.key, part.topic, part.queue_id, part.start_offset, part.end_offset, error),
        )

    def object_gone(self, part: SegmentSlice, error: ObjectNotFoundError) -> None:
        """Go on without an object of the plan, or raise ObjectNotFoundError."""
        if self._options.fail_on_data_loss:
            raise object_gone_error(part, self._reason(part)) from error
        self._counts.objects_missing += 1
        self._counts.messages_missing += part.end_offset - part.start_offset
        logger.warning(
            "messages left out, their object is gone object=%s topic=%s queue_id=%d start_offset=%d end_offset=%d",
            *(part.log.key, part.topic, part.queue_id, part.start_offset, part.end_offset),
        )

    def _reason(self, part: SegmentSlice) -> str:
        """What the ledger says today of an object that is gone."""
        store = self._store_of(part)
        keys = BrokerKeys(part.source.root)
        try:
            catalog = store.run(open_catalog(store.store, keys, only_topics=frozenset({part.topic})))
        except MQError:
            return MAY_HAVE_GONE
        entry, packed = catalog.topics.get(part.topic), catalog.packed.get(part.topic)
        if entry is None or entry.deleted:
            return "its topic has been deleted since"
        segments: tuple[SegmentEntry, ...] = tuple(entry.segments)
        named = any(segment.segment_id == part.segment_id for segment in segments)
        named |= packed is not None and any(catalog.packs[pack_id].key == part.log.key for pack_id in packed.packs)
        if named:
            return "the ledger names it, so it was removed by other hands than the broker's"
        held_later = any(
            run.queue_id == part.queue_id and run.start_offset < part.end_offset and part.start_offset < run.end_offset
            for segment in segments
            for run in segment.runs
        )
        held_later |= packed is not None and any(
            queue.queue_id == part.queue_id
            and queue.start_offset < part.end_offset
            and part.start_offset < queue.end_offset
            for queue in packed.queues
        )
        return "its messages were merged into another object since" if held_later else "its messages have expired since"


def skip_bad_body(
    options: ReadOptions, names: Mapping[str, object], queue_offset: QueueOffset, error: BadBodyError
) -> None:
    """Log that a message is left out whose body does not decompress; `names` say where it is stored.

    Raises:
        BadBodyError: The options do not skip it.
    """
    if not options.skip_corrupt_frames:
        raise BadBodyError(
            "the compressed body of a message does not decompress; onCorruptFrame=skip leaves the message out,"
            " decompressBody=false gives bodies as they are stored",
            **names,
            queue_offset=queue_offset,
            reason=error.context.get("reason", error.message),
        ) from error
    logger.warning("message with a damaged body skipped queue_offset=%d %s", queue_offset, names)


def object_gone_error(part: SegmentSlice, reason: str) -> ObjectNotFoundError:
    """The one sentence for an object of the plan that is not there."""
    return ObjectNotFoundError(
        f"an object that this read is planned on is gone: {reason}; load again, or set failOnDataLoss=false to leave "
        "its messages out",
        **slice_names(part),
    )
