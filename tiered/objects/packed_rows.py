"""PackedRows: a row of small records of numbers as one string of bytes; a record becomes an object only on access.

A catalog of 100 000 segments has some million queue runs and as many coarse frames. As objects these take most of its
memory; packed, a number takes only 8 bytes. In JSON they are arrays of arrays, as the records themselves would be:
every encoder and decoder of their owners needs `enc_hook` and `dec_hook`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import msgspec

Row = TypeVar("Row", bound=msgspec.Struct)

NUMBER_BYTES = 8


class PackedRows(Sequence[Row], Generic[Row]):
    """Immutable. A subclass says what a row is: a struct of nothing but integers, `WIDTH` of them."""

    __slots__ = ("_data",)

    ROW: ClassVar[type[msgspec.Struct]]
    WIDTH: ClassVar[int]

    def __init__(self, data: bytes = b"") -> None:
        assert len(data) % (self.WIDTH * NUMBER_BYTES) == 0
        self._data = data

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """These rows."""
        return cls.of_numbers([msgspec.structs.astuple(row) for row in rows])

    @classmethod
    def of_numbers(cls, rows: Sequence[Sequence[int]]) -> Self:
        """Rows of numbers in the order of the fields; what a row has beyond them is ignored.

        Raises:
            ValueError: A row has too few of them, or something else.
        """
        numbers = list(itertools.chain.from_iterable(row[: cls.WIDTH] for row in rows))
        if len(numbers) != cls.WIDTH * len(rows):
            raise ValueError("a row has too few numbers")
        try:
            return cls(struct.pack(f"={len(numbers)}q", *numbers))
        except struct.error as error:
            raise ValueError("a row is not of whole numbers of 64 bits") from error

    @property
    def data(self) -> bytes:
        """The numbers one after another, 8 bytes each in the order of this machine."""
        return self._data

    def numbers(self) -> list[tuple[int, ...]]:
        """The rows as numbers."""
        return list(struct.iter_unpack(f"={self.WIDTH}q", self._data))

    def column(self, index: int) -> list[int]:
        """One number of every row."""
        return memoryview(self._data).cast("q")[index :: self.WIDTH].tolist() if self._data else []

    def __len__(self) -> int:
        return len(self._data) // (self.WIDTH * NUMBER_BYTES)

    def __iter__(self) -> Iterator[Row]:
        return map(self._row, struct.iter_unpack(f"={self.WIDTH}q", self._data))

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return tuple(self)[index]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(index)
        return self._row(struct.unpack_from(f"={self.WIDTH}q", self._data, index % count * self.WIDTH * NUMBER_BYTES))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedRows):
            return type(self) is type(other) and self._data == other._data
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}.of({list(self)!r})"

    @classmethod
    def _row(cls, numbers: tuple[Any, ...]) -> Row:
        return cls.ROW(*numbers)  # type: ignore[return-value]  # a subclass names its own


def enc_hook(value: object) -> object:
    """For encoders: rows as arrays of numbers."""
    if isinstance(value, PackedRows):
        return value.numbers()
    raise NotImplementedError(f"cannot be encoded: {type(value).__name__}")  # what msgspec asks of a hook


def dec_hook(kind: type, value: Any) -> object:
    """For decoders: rows from arrays of numbers. ValueError when they are none."""
    if issubclass(kind, PackedRows):
        if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
            raise ValueError("rows are arrays of arrays")
        return kind.of_numbers(value)
    raise NotImplementedError(f"cannot be decoded: {kind.__name__}")  # what msgspec asks of a hook
