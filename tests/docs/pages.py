"""What tests of the documents share: tables, code blocks and headings of a Markdown page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

_CELL_END = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """One fenced block: its language, its text, and the headings that it stands under, outermost first."""

    language: str
    text: str
    line: int
    headings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row of a table: cells by the column's heading, and the headings that the table stands under."""

    cells: dict[str, str]
    line: int
    headings: tuple[str, ...]


def pages() -> list[Path]:
    """Every document for users."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def code_blocks(page: Path, *languages: str) -> list[CodeBlock]:
    """The page's code blocks, of some languages or of all."""
    blocks: list[CodeBlock] = []
    language: str | None = None
    body: list[str] = []
    start = 0
    for number, line, headings in _lines(page):
        if line.startswith("```"):
            if language is None:
                language, body, start = line[3:].strip(), [], number + 1
            else:
                block = CodeBlock(language=language, text="\n".join(body) + "\n", line=start, headings=headings)
                if not languages or language in languages:
                    blocks.append(block)
                language = None
        elif language is not None:
            body.append(line)
    assert language is None, f"{page.name}: a code block has no end"
    return blocks


def table_rows(page: Path) -> list[TableRow]:
    """The rows of the page's tables."""
    rows: list[TableRow] = []
    columns: list[str] = []
    for number, line, headings in _lines(page):
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = _cells(line)
        elif set(line) - set("|-: "):
            cells = _cells(line)
            assert len(cells) == len(columns), f"{page.name}:{number}: {len(cells)} cells, {len(columns)} columns"
            rows.append(TableRow(cells=dict(zip(columns, cells, strict=True)), line=number, headings=headings))
    return rows


def headings(page: Path) -> list[str]:
    """The page's headings, without their marks."""
    return [line.lstrip("#").strip() for _, line, _ in _lines(page, with_code=False) if line.startswith("#")]


def code(cell: str) -> str:
    """The text of a cell that is one piece of code; "" for any other."""
    return cell[1:-1] if len(cell) > 2 and cell[0] == cell[-1] == "`" and "`" not in cell[1:-1] else ""


def inline_code(page: Path) -> list[str]:
    """The pieces of code in the page's running text and tables; one that goes on in the next line is joined."""
    text = "\n".join(line for _, line, _ in _lines(page, with_code=False))
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        assert paragraph.count("`") % 2 == 0, f"{page.name}: a piece of code has no end: {paragraph[:80]}"
        found += (" ".join(piece.split()) for piece in paragraph.split("`")[1::2])
    return found


def _lines(page: Path, *, with_code: bool = True) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    stack: list[tuple[int, str]] = []
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        is_fence = line.startswith("```")
        if not is_code and not is_fence and line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            stack = [entry for entry in stack if entry[0] < level] + [(level, line[level:].strip())]
        if with_code or not (is_code or is_fence):
            yield number, line, tuple(title for _, title in stack)
        if is_fence:
            is_code = not is_code


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(line.strip().strip("|"))]
