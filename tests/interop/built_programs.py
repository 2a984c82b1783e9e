"""Programs of the tests that are compiled into the cache, and again only when their sources have changed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.go_toolchain import find_go

__all__ = ["built_go_program", "built_once"]


def built_go_program(sources: Path, name: str, arguments: Sequence[str] = ()) -> Path:
    """The program of a Go module. `arguments`: of `go build`.

    Raises:
        ToolMissingError: It has to be built, and there is no Go.
    """

    def command(target: Path) -> list[str]:
        go = str(find_go(default_cache_directory()))
        return [go, "build", "-trimpath", "-mod=readonly", *arguments, "-o", str(target), "."]

    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-modcacherw"}
    return built_once(sources, name, command, environment=environment, inputs=arguments)


def built_once(
    sources: Path,
    name: str,
    command: Callable[[Path], Sequence[str]],
    *,
    environment: Mapping[str, str],
    inputs: Sequence[str] = (),
) -> Path:
    """A program that `command`, run in `sources`, writes to the path it is given; kept by the digest of all sources.

    `inputs`: what else decides the program. What `command` raises is passed on.
    """
    digest = hashlib.sha256(" ".join(inputs).encode())
    for source in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(source.read_bytes())
    target = default_cache_directory() / "bin" / f"{name}-{digest.hexdigest()[:16]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not target.is_file():
            partial = target.with_suffix(".partial")
            built = subprocess.run(
                command(partial),
                cwd=sources,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=False,
            )
            assert built.returncode == 0, built.stderr
            partial.rename(target)
    return target
