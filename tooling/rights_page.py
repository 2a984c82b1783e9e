"""Writes the table of rights in docs/security.md from `auth/rights_table.py`.

`python -m tooling.rights_page`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from thermocline.auth.rights_table import FAMILIES
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security.md"
HEADER = "| code | name | about | what it needs |\n|---|---|---|---|\n"


def rows() -> Iterator[str]:
    """The rows, in the order of the codes."""
    names = {int(code): code.name for codes in (RequestCode, PrivateRequestCode) for code in codes}
    table = {int(code): (family, rule) for family, rules in FAMILIES.items() for code, rule in rules.items()}
    for code, (family, rule) in sorted(table.items()):
        yield f"| {code} | `{names[code]}` | {family} | {rule} |\n"


def replaced(text: str) -> str:
    """The page with the table as it is now, at its place or at the end of the section."""
    start = text.find(HEADER)
    if start < 0:
        return text.rstrip("\n") + "\n\n" + HEADER + "".join(rows())
    end = start + len(HEADER)
    while text.startswith("|", end):
        end = text.index("\n", end) + 1
    return text[:start] + HEADER + "".join(rows()) + text[end:]


def main() -> None:
    """Write the page."""
    PAGE.write_text(replaced(PAGE.read_text()))


if __name__ == "__main__":
    main()
