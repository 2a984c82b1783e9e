"""Rust toolchain: builds a Rust program of a pinned version into the cache.

cargo downloads the crate from the crate registry. The lock file in the crate pins the version and the checksum of every
dependency (`--locked`).
"""

from __future__ import annotations

from pathlib import Path

from thermocline.localstack.compiled_program import Compilation, Compiler, build_directory, compile_program

RUST_VERSION_MIN = (1, 92)


def machine_cargo() -> Compiler:
    """Describe the compiler `cargo`; `find` of the result searches the machine for it."""
    minimum = ".".join(map(str, RUST_VERSION_MIN))
    return Compiler(
        command="cargo",
        version_min=RUST_VERSION_MIN,
        version_arguments=("--version",),
        version_pattern=r"cargo (\d+)\.(\d+)",
        directories=(str(Path.home() / ".cargo" / "bin"),),
        wanted=f"Rust {minimum} or newer is needed to build the test server s3s-fs and the official Rust client: "
        "install it and put `cargo` on the PATH.",
    )


def build_rust_program(crate: str, version: str, target: Path, *, features: str) -> None:
    """Build the program of `crate` and put it at `target`, atomically. If `target` exists, do nothing.

    Raises:
        ToolMissingError: `cargo` is missing, or older than RUST_VERSION_MIN.
        LocalStackError: The build failed; the message ends with cargo's output.
    """
    _install([crate, "--version", version, "--features", features], target)


def build_rust_folder(folder: Path, target: Path) -> None:
    """Build the program whose crate is in `folder` and put it at `target`, atomically. If `target` exists, do nothing.

    Raises:
        ToolMissingError: `cargo` is missing, or older than RUST_VERSION_MIN.
        LocalStackError: The build failed; the message ends with cargo's output.
    """
    _install(["--path", str(folder)], target)


def _install(crate: list[str], target: Path) -> None:
    if target.is_file():
        return
    cargo = machine_cargo().find()
    with build_directory(target) as directory:
        root = Path(directory) / "root"
        # A build without optimisation takes a third of the time, and is fast enough for tests.
        command = [str(cargo), "install", *crate, "--locked", "--debug", "--no-track", "--root", str(root)]
        environment = {"CARGO_TARGET_DIR": str(Path(directory) / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}
        compile_program(target, Compilation(command=command, environment=environment, result_directory=root / "bin"))
