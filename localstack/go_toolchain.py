"""Building one pinned Go program into the cache.

The module proxy serves the source, Go's own checksum database vouches for it, and only the binary is kept: it needs
nothing else to run. The file's name carries the version, so another pin never meets an old binary.
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

# From here on a Go toolchain fetches the newer one that a module asks for, through the module proxy.
GO_VERSION_MIN = (1, 21)
INSTALL_DIRECTORIES = ("/usr/local/go/bin", "/usr/lib/go/bin")


def find_go() -> Path:
    """The `go` command.

    Raises:
        ToolMissingError: There is none, or only one that is too old.
    """
    search = os.pathsep.join([os.environ.get("PATH", ""), *INSTALL_DIRECTORIES])
    found = shutil.which("go", path=search)
    wanted = "Go 1.25 or newer is needed to build the S3 test servers: install it and put `go` on the PATH."
    if found is None:
        raise ToolMissingError(wanted)
    version = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"go(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < GO_VERSION_MIN:
        raise ToolMissingError(f"{wanted} ({found} is {version.strip() or 'broken'}.)")
    return Path(found)


def build_go_program(module: str, version: str, target: Path) -> None:
    """Build `module`@`version` and put the program at `target`, atomically.

    Raises:
        ToolMissingError: There is no Go.
        LocalStackError: The build failed; the message ends with what Go said.
    """
    if target.is_file():
        return
    go = find_go()
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"building {target.name} with {go} (once; some minutes)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as directory:
        build = subprocess.run(
            [str(go), "install", "-trimpath", "-ldflags", "-s -w", f"{module}@{version}"],
            env={**os.environ, "CGO_ENABLED": "0", "GOBIN": directory, "GOFLAGS": "-modcacherw"},
            capture_output=True,
            text=True,
            check=False,
        )
        built = list(Path(directory).iterdir())
        if build.returncode != 0 or len(built) != 1:
            raise LocalStackError(f"{target.name} could not be built:\n{build.stderr[-2_000:]}")
        built[0].replace(target)
