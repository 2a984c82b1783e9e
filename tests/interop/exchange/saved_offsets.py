"""Consumer offsets as a broker has saved them: what the next one to open the store starts from."""

from __future__ import annotations

from pathlib import Path

from thermocline.remoting import json_dialect


def saved_offsets(store: Path, topic: str, group: str) -> dict[int, int]:
    """By queue id; empty while nothing is saved."""
    try:
        data = (store / "config" / "consumerOffset.json").read_bytes()
    except FileNotFoundError:  # the official broker deletes the file before it moves the new one there
        return {}
    offsets: dict[int | str, int] = json_dialect.loads(data)["offsetTable"].get(f"{topic}@{group}", {})
    return {int(queue_id): offset for queue_id, offset in offsets.items()}
