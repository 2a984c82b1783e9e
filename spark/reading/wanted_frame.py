"""WantedFrame: a frame that a task may have to fetch, and how errors name it and the slice that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.tiered.segment_format import FrameInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFrame:
    """A frame that may hold rows of a slice."""

    part: SegmentSlice
    info: FrameInfo

    @property
    def start(self) -> int:
        """Where it starts in its object."""
        return self.part.log.start + self.info.position

    @property
    def end(self) -> int:
        """Where it ends in its object."""
        return self.start + self.info.stored_bytes

    @property
    def wanted_offsets(self) -> int:
        """How many offsets of it lie in the range of the read."""
        selection = self.part.selection
        start = max(self.info.start_offset, selection.start_offset)
        return max(0, min(self.info.end_offset, selection.end_offset) - start)

    def names(self) -> dict[str, object]:
        """What an error says of it."""
        return part_names(self.part) | {
            "frame": self.info.index,
            "offsets": f"[{self.info.start_offset}, {self.info.end_offset})",
        }


def part_names(part: SegmentSlice) -> dict[str, object]:
    """What an error says of a slice."""
    return {
        "object": part.log.key,
        "topic": part.topic,
        "queue": f"{part.source.broker_name}:{part.queue_id}",
        "version": part.source.version,
    }


def with_names(error: ObjectStoreUnavailableError, part: SegmentSlice) -> ObjectStoreUnavailableError:
    """The same error with what was being read."""
    offsets = f"[{part.start_offset}, {part.end_offset})"
    return type(error)(error.message, **(error.context | part_names(part) | {"offsets": offsets}))
