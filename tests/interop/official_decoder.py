"""The JVM that reads bodies and headers with RocketMQ's decoders; its other half is `java5/interop/Decoder.java`."""

from __future__ import annotations

import base64
import contextlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.line_program import LineProgram, line_program
from tooling.official_rocketmq import OfficialSoftware

MAIN_CLASS = "interop.Decoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a decoder made of a text: its value, as `Decoder.java` describes it, or why it refused."""

    value: Any = None
    refused: str | None = None


class OfficialDecoder:
    """A running decoder; made by `official_decoder`."""

    def __init__(self, program: LineProgram, software: OfficialSoftware) -> None:
        self._program = program
        self._classes = _class_names(software)

    def has_class(self, simple_name: str) -> bool:
        """Whether RocketMQ has one class of the name."""
        return len(self._classes.get(simple_name, ())) == 1

    def bodies(self, cases: Sequence[tuple[str, bytes]]) -> list[tuple[Verdict, Verdict]]:
        """Each text as a class: by the decoder of release 5.5.0, and by that of the releases before."""
        answers = self._program.ask([self._line("body", name, text) for name, text in cases])
        return [(Verdict(**answer["now"]), Verdict(**answer["before"])) for answer in answers]

    def headers(self, cases: Sequence[tuple[str, Mapping[str, str]]]) -> list[Verdict]:
        """Each map of ext fields as a header class."""
        return [Verdict(**answer) for answer in self._program.ask([self._header_line(*case) for case in cases])]

    def decode_themselves(self, names: Sequence[str]) -> list[bool]:
        """Whether each header class decodes itself (FastCodesHeader)."""
        return self._program.ask([self._line("fast", name, b"") for name in names])

    def _header_line(self, name: str, fields: Mapping[str, str]) -> str:
        pairs = ("\t".join(base64.b64encode(word.encode()).decode() for word in pair) for pair in fields.items())
        return self._line("header", name, "\n".join(pairs).encode())

    def _line(self, kind: str, name: str, data: bytes) -> str:
        (full_name,) = self._classes[name]
        return f"{kind}\t{full_name}\t{base64.b64encode(data).decode()}\n"


@contextlib.contextmanager
def official_decoder(software: OfficialSoftware, directory: Path) -> Iterator[OfficialDecoder]:
    """Run a decoder; its log is in `directory`."""
    with line_program(software, directory, MAIN_CLASS, log_name="decoder.log") as program:
        yield OfficialDecoder(program, software)


def _class_names(software: OfficialSoftware) -> dict[str, list[str]]:
    """Full names by simple names, of what travels."""
    names: dict[str, list[str]] = {}
    for module in ("remoting", "common"):
        (jar,) = software.jars.glob(f"rocketmq-{module}-*.jar")
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".class"):
                    full_name = entry.removesuffix(".class").replace("/", ".")
                    names.setdefault(full_name.rpartition(".")[2], []).append(full_name)
    return names
