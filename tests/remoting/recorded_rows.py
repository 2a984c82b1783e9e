"""Recorded rows: requests and answers of official 5.5.0 clients, tools and brokers, and records from their log.

`recorded/commands.jsonl`: one command a line, its header taken apart (kind, code, extFields ...), its body as
`body_text` (JSON) or `body_b64`. `recorded/records.jsonl`: one message record a line, as the official broker wrote it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recorded"


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines()]


COMMANDS = _rows("commands.jsonl")
RECORDS = _rows("records.jsonl")


def command_name(row: dict[str, Any]) -> str:
    """For test ids."""
    name = row.get("name") or f"answer-{row['code']}-to-{row.get('answers')}"
    return f"{name}-{row['opaque']}"


def body_bytes(row: dict[str, Any]) -> bytes:
    """The body as it was on the wire."""
    if "body_text" in row:
        return str(row["body_text"]).encode()
    return base64.b64decode(row.get("body_b64", ""))


def json_header(row: dict[str, Any]) -> bytes:
    """The JSON header as the official side writes it: members in alphabetical order, no blanks."""
    members = {
        "code": row["code"],
        "extFields": row.get("extFields"),
        "flag": row["flag"],
        "language": row["language"],
        "opaque": row["opaque"],
        "remark": row.get("remark"),
        "serializeTypeCurrentRPC": "JSON",
        "version": row["version"],
    }
    present = {name: value for name, value in members.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":")).encode()
