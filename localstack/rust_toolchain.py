"""Building one pinned Rust program into the cache.

The crate registry serves the source, and the lock file that the crate itself carries (`--locked`) vouches for all that
it needs. Only the binary is kept; its name carries the version, so another pin never meets an old one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from thermocline.localstack.errors import LocalStackError, ToolMissingError

RUST_VERSION_MIN = (1, 92)


def find_cargo() -> Path:
    """The `cargo` command.

    Raises:
        ToolMissingError: There is none, or only one that is too old.
    """
    search = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")])
    found = shutil.which("cargo", path=search)
    minimum = ".".join(map(str, RUST_VERSION_MIN))
    wanted = (
        f"Rust {minimum} or newer is needed to build the test server s3s-fs: install it and put `cargo` on the PATH."
    )
    if found is None:
        raise ToolMissingError(wanted)
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"cargo (\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < RUST_VERSION_MIN:
        raise ToolMissingError(f"{wanted} ({found} is {version.strip() or 'broken'}.)")
    return Path(found)


def build_rust_program(crate: str, version: str, target: Path, *, features: str) -> None:
    """Build the program of `crate` and put it at `target`, atomically.

    Raises:
        ToolMissingError: There is no Rust.
        LocalStackError: The build failed; the message ends with what cargo said.
    """
    if target.is_file():
        return
    cargo = find_cargo()
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"building {target.name} with {cargo} (once; some minutes)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as directory:
        root = Path(directory) / "root"
        # Not optimised: that takes a third of the time, and a test server has little to do.
        command = [str(cargo), "install", crate, "--version", version, "--locked", "--debug", "--features", features]
        build = subprocess.run(
            [*command, "--no-track", "--root", str(root)],
            env={**os.environ, "CARGO_TARGET_DIR": str(Path(directory) / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        built = list((root / "bin").iterdir()) if (root / "bin").is_dir() else []
        if build.returncode != 0 or len(built) != 1:
            raise LocalStackError(f"{target.name} could not be built:\n{build.stderr[-2_000:]}")
        built[0].replace(target)
