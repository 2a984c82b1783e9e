"""PartKind: the name, the magic and the versions of one kind of part, pack or index object of the cold format.

Each kind has a version of its own, in the trailer (`segment_format.py`), and a table of decoders by version. A later
version of one kind, say with a column more, adds a decoder to the table of that kind: what was written before is read
as before, and the other kinds keep their versions. A version that is not in the table is refused by FormatTooNewError,
whose object is neither damaged nor to be healed, merged or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from thermocline.tiered.objects import FormatTooNewError

Footer = TypeVar("Footer")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartKind(Generic[Footer]):
    """`version` is what is written; `decoders` has the decoder of a footer's content for each version that is read."""

    name: str
    magic: bytes
    version: int
    decoders: dict[int, Callable[[bytes], Footer]]

    def __post_init__(self) -> None:
        assert self.version in self.decoders, "what is written can be read"

    def of_version(self, table: Mapping[int, Value], version: int) -> Value:
        """What `table` has for a version of this kind. FormatTooNewError when it has nothing."""
        found = table.get(version)
        if found is None:
            raise FormatTooNewError(
                "this version of the cold format cannot be read: use a later Thermocline",
                kind=self.name,
                format_version=version,
                versions_read=",".join(map(str, sorted(table))),
            )
        return found

    def decoder(self, version: int) -> Callable[[bytes], Footer]:
        """The decoder of a footer of that version. FormatTooNewError when there is none."""
        return self.of_version(self.decoders, version)
