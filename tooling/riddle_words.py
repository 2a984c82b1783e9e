"""Count the riddle words of the style guide in code and pages, by folder.

Run `python -m tooling.riddle_words [FOLDER ...]`; without a folder it reads every file that git tracks.
It prints `file:line: word: text` for each hit, then a count per folder and the total. Exit code 0, whatever the count.

What it reads
  - Python: comments, string literals (docstrings, help texts, messages) and identifiers, by the tokenizer.
  - Markdown: the whole text.
Exceptions, by rule
  - Text in backticks is a quotation of a name, in a comment as on a page; so are fenced blocks of a page.
  - CHANGELOG.md is history. This file and its test list the words themselves.
  - `left` names an operand in files of filters/ and tests/filters/ beside `right`: the grammar's own terms.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

RIDDLE_PHRASES = (
    r"nobody|anybody|somebody|everybody|whoever|whomever|whom",
    r"he|him|his",
    r"lies|lives",
    r"is said|was said|told|knows|asked for",
    r"what [^.;:`\n]{0,60}\bwhat",
)
RIDDLE_NAMES = frozenset({"look", "take", "known", "left", "lives", "told", "said"})

EXEMPT_FILES = frozenset({"CHANGELOG.md", "tooling/riddle_words.py", "tests/tooling/test_riddle_words.py"})

OPERAND_FOLDERS = ("filters/", "tests/filters/")
LEFT_OPERAND, RIGHT_OPERAND = "left", "right"

PHRASE = re.compile(rf"\b(?:{'|'.join(RIDDLE_PHRASES)})\b", re.IGNORECASE)
QUOTED_NAME = re.compile(r"`[^`\n]*`")
FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiddleWord:
    """One hit: the line (from 1) in its file, the word and the text around it."""

    line: int
    word: str
    text: str


def riddle_words_of_page(text: str) -> Iterator[RiddleWord]:
    """Yield the hits of a Markdown page; fenced blocks and text in backticks are skipped."""
    is_fenced = False
    for line, content in enumerate(text.splitlines(), start=1):
        if content.lstrip().startswith(FENCE):
            is_fenced = not is_fenced
        elif not is_fenced:
            yield from _riddle_words_of_text(content, first_line=line)


def riddle_words_of_python(source: str, *, name: str = "") -> Iterator[RiddleWord]:
    """Yield the hits of the Python file `name`; SyntaxError or tokenize.TokenError if it is not Python."""
    text_tokens = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    riddle_names = RIDDLE_NAMES - _operand_names(tokens, name)
    for token in tokens:
        if token.type in text_tokens:
            yield from _riddle_words_of_text(token.string, first_line=token.start[0])
        elif token.type == tokenize.NAME and token.string.strip("_") in riddle_names:
            yield RiddleWord(line=token.start[0], word=token.string, text=token.line.strip())


def _operand_names(tokens: Iterable[tokenize.TokenInfo], name: str) -> frozenset[str]:
    """The names in a file of filters that stand for the left operand of a binary expression."""
    has_right = any(token.type == tokenize.NAME and token.string.strip("_") == RIGHT_OPERAND for token in tokens)
    return frozenset({LEFT_OPERAND}) if has_right and name.startswith(OPERAND_FOLDERS) else frozenset()


def _riddle_words_of_text(text: str, *, first_line: int) -> Iterator[RiddleWord]:
    for line, content in enumerate(text.splitlines(), start=first_line):
        for match in PHRASE.finditer(QUOTED_NAME.sub("``", content)):
            yield RiddleWord(line=line, word=match.group(), text=content.strip())


def _tracked_files(folders: list[str]) -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z", "--", *folders], cwd=ROOT, check=True, capture_output=True)
    return [name for name in listing.stdout.decode().split("\0") if name.endswith((".py", ".md"))]


def main(folders: list[str]) -> None:
    """Print each hit in `folders` and the counts."""
    counts: Counter[str] = Counter()
    for name in _tracked_files(folders):
        path = ROOT / name
        # The package's folders are links below src/: each file is read once, under its own name.
        if name in EXEMPT_FILES or path.is_symlink():
            continue
        text = path.read_text(encoding="utf-8")
        hits = riddle_words_of_python(text, name=name) if name.endswith(".py") else riddle_words_of_page(text)
        for hit in hits:
            print(f"{name}:{hit.line}: {hit.word}: {hit.text}")
            counts[name.split("/")[0]] += 1
    for folder, count in counts.most_common():
        print(f"{count:6} {folder}")
    print(f"{counts.total():6} in all")


if __name__ == "__main__":
    main(sys.argv[1:])
