"""A directory that is made once and kept: filled under another name and renamed, so under its own name it is complete.

Two callers wait for each other.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def made_once(target: Path, fill: Callable[[Path], None], *, doing: str) -> Path:
    """Make `target` by `fill`, which is given where to put everything, unless it is there; return it.

    `doing`: what that is, for the person who waits. What `fill` raises is passed on, and nothing is left behind.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        print(f"{doing} (once)", file=sys.stderr, flush=True)
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            fill(partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target
