"""Offsets are annotated by their kind (`remoting/offsets.py`); what mypy then finds: `typing_tests/mixing_offsets.py`.

A field, parameter or variable called `..._offset` whose annotation is `int` would let any number through again, so this
test reads the annotations of all folders but the SDK's and the commands', where users give and get plain numbers.

Covers `remoting/offsets.py`, `tiered/objects/segment_offset.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from thermocline.remoting.header_codec import decode_header, encode_header
from thermocline.remoting.headers import OffsetResponseHeader
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset, offset_range
from thermocline.tiered.objects import SegmentOffset

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("broker", "pop", "remoting", "replication", "spark", "store", "tiered", "timers", "transactions")

PLAIN = {
    ("tiered/s3/upload_body.py", "offset"): "a parameter of io.IOBase.seek",
    ("store/files/mapped_file.py", "base_offset"): "files of the log and of queues are named alike: a number of bytes",
}
"""What may be an `int`, and why."""


def annotated(tree: ast.AST) -> Iterator[tuple[str, ast.expr, int]]:
    """Names with their annotation and line: parameters, fields, variables, and functions with what they return."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, node.annotation, node.lineno
        elif isinstance(node, ast.AnnAssign):
            name = node.target.attr if isinstance(node.target, ast.Attribute) else getattr(node.target, "id", "")
            yield name, node.annotation, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.name, node.returns, node.lineno


def is_plain(annotation: ast.expr) -> bool:
    """`int`, `int | None` or `Long`."""
    if isinstance(annotation, ast.BinOp):
        return is_plain(annotation.left) or is_plain(annotation.right)
    return isinstance(annotation, ast.Name) and annotation.id in ("int", "Long")


def found_plain() -> dict[tuple[str, str], int]:
    """File and name -> line, of each offset that is annotated as a plain number."""
    return {
        (str(path.relative_to(ROOT)), name): line
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, annotation, line in annotated(ast.parse(path.read_text()))
        if name.strip("_").endswith("offset") and is_plain(annotation)
    }


def test_each_offset_has_its_kind() -> None:
    found = found_plain()
    wrong = [f"{path}:{line} {name}" for (path, name), line in found.items() if (path, name) not in PLAIN]
    assert not wrong, "give it the type of its kind, see remoting/offsets.py:\n" + "\n".join(wrong)
    assert not PLAIN.keys() - found.keys(), "no longer there"


def test_at_run_time_an_offset_is_an_int() -> None:
    assert {type(kind(7)) for kind in (QueueOffset, PhysicalOffset, SegmentOffset)} == {int}
    assert offset_range(QueueOffset(3), QueueOffset(6)) == range(3, 6)


def test_headers_read_and_write_offsets_as_numbers() -> None:
    header = decode_header(OffsetResponseHeader, {"offset": "9007199254740993"})
    assert header == OffsetResponseHeader(offset=QueueOffset(9_007_199_254_740_993))
    assert type(header.offset) is int
    assert encode_header(header) == {"offset": "9007199254740993"}
