"""WantedFrame: a frame that a task may have to fetch, and how errors name it and the slice that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.tiered.objects import SegmentOffset
from thermocline.tiered.segments import FrameInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFrame:
    """A frame that may hold rows of a slice."""

    part: SegmentSlice
    info: FrameInfo

    @property
    def start(self) -> SegmentOffset:
        """Where it starts in its object."""
        return self.part.log.start + self.info.position

    @property
    def end(self) -> SegmentOffset:
        """Where it ends in its object."""
        return self.start + self.info.stored_bytes

    @property
    def wanted_offsets(self) -> int:
        """How many of its offsets are in the range of the read."""
        selection = self.part.selection
        start = max(self.info.start_offset, selection.start_offset)
        return max(0, min(self.info.end_offset, selection.end_offset) - start)

    def names(self) -> dict[str, object]:
        """The context of an error about the frame."""
        return part_names(self.part) | {
            "frame": self.info.index,
            "offsets": f"[{self.info.start_offset}, {self.info.end_offset})",
        }


def part_names(part: SegmentSlice) -> dict[str, object]:
    """The context of an error: where a slice is stored."""
    return {
        "object": part.log.key,
        "topic": part.topic,
        "queue": f"{part.source.broker_name}:{part.queue_id}",
        "version": part.source.version,
    }


def slice_names(part: SegmentSlice) -> dict[str, object]:
    """The context of an error about a slice: its object, its frames and their offsets."""
    start, end = part.frames
    return part_names(part) | {
        "frames": f"[{start}, {end})",
        "offsets": f"[{part.start_offset}, {part.end_offset})",
    }


def narrowed(part: SegmentSlice, frames: Sequence[FrameInfo]) -> SegmentSlice:
    """The slice of these frames alone, which follow each other, and of the offsets that are wanted of them."""
    return replace(
        part,
        start_offset=max(part.selection.start_offset, frames[0].start_offset),
        end_offset=min(part.selection.end_offset, frames[-1].end_offset),
        frames=(frames[0].index, frames[-1].index + 1),
    )


def narrowed_to(group: Sequence[WantedFrame]) -> Iterator[SegmentSlice]:
    """Of frames that are fetched together, each slice narrowed to those that are its own."""
    for part in dict.fromkeys(frame.part for frame in group):
        yield narrowed(part, [frame.info for frame in group if frame.part is part])


def with_names(error: ObjectStoreUnavailableError, *parts: SegmentSlice) -> ObjectStoreUnavailableError:
    """The same error with what was being read: the first slice, and what else came with the same request."""
    place = {name: value for name, value in error.context.items() if name != "key"}
    further = [
        f"{each['queue']} frames={each['frames']} offsets={each['offsets']}" for each in map(slice_names, parts[1:])
    ]
    names = slice_names(parts[0]) | ({"also": "; ".join(further)} if further else {})
    return type(error)(error.message, **(names | place))
