"""Output: results on stdout, as tables for people or JSON for programs; everything else on stderr.

With `--json` a command writes exactly one JSON value: a list of objects for tables, an object for single values. Member
names are the column names in snake_case; times are milliseconds since 1970, as in the SDK. A command that failed, or of
which brokers failed, writes an object instead: `result` is that value, made of the answers that came, or null; `errors`
is a list with one object for each failure, which names the broker or NameServer. Tables show the same rows
with times and sizes in readable form, and are as wide as they need to be when stdout is not a terminal, so that
nothing is cut.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.progress import Progress

    from thermocline.client.fan_out import PeerFailure
    from thermocline.remoting.errors import MQError

__all__ = ["Failure", "Output", "Row", "discard_stdout", "harmless", "open_missing_streams"]

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A part of a command that failed."""

    sentence: str
    error: str
    broker: str | None = None
    namesrv: str | None = None
    address: str | None = None

    @property
    def place(self) -> tuple[str | None, ...]:
        """Identifies the broker or NameServer that failed, of which the first failure is kept; else the failure."""
        named = (self.broker, self.namesrv, self.address)
        return named if any(named) else (self.sentence,)

    def value(self) -> Row:
        """As programs get it."""
        place = {"namesrv": self.namesrv} if self.namesrv else {"broker": self.broker, "address": self.address}
        return {**place, "error": self.error}

    @classmethod
    def of(cls, error: MQError) -> list[Failure]:
        """Return the failures of an error: one for each broker or NameServer of a partial result, else one."""
        from thermocline.client.fan_out import PartialResultError

        if isinstance(error, PartialResultError):
            return [cls._of_peer(failure) for failure in error.failures]
        broker, address = error.context.get("broker"), error.context.get("address")
        return [
            cls(
                sentence=str(error),
                error=str(error),
                broker=None if broker is None else str(broker),
                address=None if address is None else str(address),
            )
        ]

    @classmethod
    def _of_peer(cls, failure: PeerFailure) -> Failure:
        is_broker = failure.broker_name is not None
        return cls(
            sentence=str(failure),
            error=str(failure.error),
            broker=failure.broker_name,
            namesrv=None if is_broker else failure.address,
            address=failure.address if is_broker else None,
        )


_BYTES_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Output:
    """Where one command's results go."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.failures: list[Failure] = []
        """The failed parts; callers add all of them before they show the result."""

    def rows(self, rows: Iterable[Row], *, columns: Sequence[str] = ()) -> None:
        """Show one line a row; `columns` orders and limits what people see, programs get every member."""
        table_rows = [dict(row) for row in rows]
        if self.as_json:
            self._write_json(table_rows)
            return
        if not table_rows:
            if not self.failures:
                self.note("nothing to show")
            return
        self._print_table(table_rows, list(columns) or list(table_rows[0]))

    def stream(self, rows: Iterable[Row], *, columns: Sequence[str]) -> None:
        """As `rows`, each written as soon as it comes. JSON is one array still; a column grows with what it shows."""
        if self.as_json:
            _stream_json(rows)
            return
        headings = [heading(column) for column in columns]
        widths = [len(text) for text in headings]
        is_empty = True
        for row in rows:
            if is_empty:
                sys.stdout.write("  ".join(headings) + "\n")
                is_empty = False
            cells = [for_people(column, row.get(column)) for column in columns]
            widths = [max(width, len(cell)) for width, cell in zip(widths, cells, strict=True)]
            padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            sys.stdout.write("  ".join(padded).rstrip() + "\n")
        if is_empty:
            self.note("nothing to show")

    def value(self, value: Row) -> None:
        """Show one object: member by member for people."""
        if self.as_json:
            self._write_json(value)
            return
        width = max((len(name) for name in value), default=0)  # names of settings and figures are kept as they are
        for name, member in value.items():
            sys.stdout.write(f"{name:<{width}}  {for_people(name, member)}\n")

    def text(self, text: str, *, value: Row) -> None:
        """Say what was done: a sentence for people, `value` for programs."""
        if self.as_json:
            self._write_json(value)
        else:
            sys.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        """Write a note to stderr; it is not part of the result."""
        sys.stderr.write(text + "\n")

    def failed(self) -> None:
        """Show to programs that there is no result; what failed is in `failures`."""
        if self.as_json:
            self._write_json(None)

    def add_failures(self, failures: Iterable[Failure]) -> None:
        """Keep what failed, each broker's first failure."""
        places = {failure.place for failure in self.failures}
        for failure in failures:
            if failure.place not in places:
                places.add(failure.place)
                self.failures.append(failure)

    def _write_json(self, value: object) -> None:
        if self.failures:
            value = {"result": value, "errors": [failure.value() for failure in self.failures]}
        _write_json(value)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show progress bars on stderr while something takes long; only on a terminal."""
        from rich.console import Console
        from rich.progress import Progress

        console = Console(file=sys.stderr)
        console.quiet = not console.is_terminal  # rich 13 ends with an empty line elsewhere
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            yield progress

    def _print_table(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        headings = [heading(column) for column in columns]
        cells = [[for_people(column, row.get(column)) for column in columns] for row in rows]
        numeric = [all(isinstance(row.get(column), int | float) for row in rows) for column in columns]
        numeric = [is_number and not column.endswith("_ms") for is_number, column in zip(numeric, columns, strict=True)]
        if sys.stdout.isatty():
            _print_for_terminal(headings, cells, numeric)
            return
        widths = [max(map(len, texts)) for texts in zip(headings, *cells, strict=True)]
        for line in [headings, *cells]:
            padded = [
                text.rjust(width) if is_number else text.ljust(width)
                for text, width, is_number in zip(line, widths, numeric, strict=True)
            ]
            sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _print_for_terminal(headings: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """Print a table that folds into the terminal's width."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for text, is_number in zip(headings, numeric, strict=True):
        table.add_column(text, justify="right" if is_number else "left", overflow="fold")
    for line in cells:
        table.add_row(*line)
    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(table)


def heading(name: str) -> str:
    """Return a column's name as people read it: words, without the unit that the value shows anyway."""
    for unit in ("_timestamp_ms", "_bytes"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def for_people(name: str, value: object) -> str:
    """Return a member as people read it; its name's unit says how."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_timestamp_ms"):
        return time_text(value)
    if isinstance(value, int) and name.endswith("_bytes"):
        return bytes_text(value)
    if isinstance(value, Mapping):
        return harmless(" ".join(f"{key}={member}" for key, member in value.items())) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return harmless(" ".join(str(item) for item in value)) or "-"
    return harmless(str(value))


def harmless(text: str) -> str:
    """Return the text with everything escaped that a terminal would not simply print."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def snake_names(value: Any) -> Any:
    """Return a broker's JSON with its members named as all of this command's JSON names them."""
    if isinstance(value, Mapping):
        return {_snake_name(name): snake_names(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [snake_names(member) for member in value]
    return value


def _snake_name(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def time_text(timestamp_ms: int) -> str:
    """Return a time in the local zone to the millisecond; "-" for 0 and less, which mean "none".

    What is beyond the calendar, which ends with the year 9999, stays a number.
    """
    if timestamp_ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # producers say when a message was born: anything
    return moment.isoformat(sep=" ", timespec="milliseconds")


def bytes_text(size_bytes: int) -> str:
    """Return a size in the greatest unit that leaves a number of at least one."""
    size = float(size_bytes)
    for unit in _BYTES_UNITS[:-1]:
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_BYTES_UNITS[-1]}"


def _write_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(_json_text(value), indent=2) + "\n")


def _stream_json(rows: Iterable[Row]) -> None:
    """One array, an element a line. What fails before the first element writes nothing."""
    separator = "[\n"
    for row in rows:
        sys.stdout.write(separator + _json_text(row))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _json_text(value: object) -> str:
    """The value as JSON that stdout can take: with escapes where it is no UTF-8, or where a text is no Unicode."""
    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=str))
    return text


# -- the streams of the process ----------------------------------------------------------------------------------------


def open_missing_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr (`>&-`) the null device in their places.

    The next file or socket would take the place, and what is meant for the stream would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(descriptor, True)  # of helper processes, too
            stream = io.FileIO(descriptor, "w" if number else "r", closefd=False)
            buffered = io.BufferedWriter(stream) if number else io.BufferedReader(stream)
            setattr(sys, name, io.TextIOWrapper(buffered, encoding="utf-8"))


def discard_stdout() -> None:
    """Discard what stdout still holds: Python would try to write it once more at the end, and say so."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
