"""Programs of the tests in Go: built into the cache, and again only when their sources have changed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.go_toolchain import find_go

__all__ = ["build_go_program", "built_go_program"]


def built_go_program(sources: Path, name: str, arguments: Sequence[str] = ()) -> Path:
    """The program of the Go module in a folder, kept in the cache by a digest of it. `arguments`: of `go build`.

    Raises:
        ToolMissingError: It has to be built, and there is no Go.
    """
    digest = hashlib.sha256(" ".join(arguments).encode())
    for source in sorted(sources.iterdir()):
        digest.update(source.read_bytes())
    target = default_cache_directory() / "bin" / f"{name}-{digest.hexdigest()[:16]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not target.is_file():
            partial = target.with_suffix(".partial")
            build_go_program(sources, partial, arguments)
            partial.rename(target)
    return target


def build_go_program(sources: Path, target: Path, arguments: Sequence[str] = ()) -> None:
    """Build the Go module in a folder.

    Raises:
        ToolMissingError: There is no Go.
    """
    go = find_go(default_cache_directory())
    built = subprocess.run(
        [str(go), "build", "-trimpath", "-mod=readonly", *arguments, "-o", str(target), "."],
        cwd=sources,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
