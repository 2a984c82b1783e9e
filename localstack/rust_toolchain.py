"""Building one pinned Rust program into the cache.

The crate registry serves the source, and the lock file that the crate itself carries (`--locked`) vouches for all that
it needs.
"""

from __future__ import annotations

from pathlib import Path

from thermocline.localstack.compiled_program import Compilation, Compiler, build_directory, compile_program

RUST_VERSION_MIN = (1, 92)


def machine_cargo() -> Compiler:
    """The `cargo` command that the machine may have."""
    minimum = ".".join(map(str, RUST_VERSION_MIN))
    return Compiler(
        command="cargo",
        version_min=RUST_VERSION_MIN,
        version_arguments=("--version",),
        version_pattern=r"cargo (\d+)\.(\d+)",
        directories=(str(Path.home() / ".cargo" / "bin"),),
        wanted=f"Rust {minimum} or newer is needed to build the test server s3s-fs: install it and put `cargo` on the "
        "PATH.",
    )


def build_rust_program(crate: str, version: str, target: Path, *, features: str) -> None:
    """Build the program of `crate` and put it at `target`, atomically.

    Raises:
        ToolMissingError: There is no Rust.
        LocalStackError: The build failed; the message ends with what cargo said.
    """
    if target.is_file():
        return
    cargo = machine_cargo().find()
    with build_directory(target) as directory:
        root = Path(directory) / "root"
        # Not optimised: that takes a third of the time, and a test server has little to do.
        command = [str(cargo), "install", crate, "--version", version, "--locked", "--debug", "--features", features]
        environment = {"CARGO_TARGET_DIR": str(Path(directory) / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}
        compile_program(
            target,
            Compilation(
                command=[*command, "--no-track", "--root", str(root)],
                environment=environment,
                result_directory=root / "bin",
            ),
        )
