"""Which processes run in a group: a daemon's are all in one."""

from __future__ import annotations

import os
from pathlib import Path


def processes_of(group: int) -> list[int]:
    """All processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found
