"""The virtual environment `.venv`: the locked packages, and this project installed editable.

Runs under the machine's own Python with the standard library alone, because nothing else is there yet.

Rules
  - Packages come from requirements.lock with their hashes checked, and nothing that is not in it is installed.
  - A stamp inside the environment holds a digest of all it was made from. While the digest is the same, a call costs
    milliseconds; when it differs, pip is run again over the same environment.
  - One at a time: two `make` calls wait for each other on a lock file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
STAMP = ENVIRONMENT / "made-from"
PYTHON_VERSION_MIN = (3, 11)
# Packages that build others: installed first, so that an archive without a wheel needs nothing from outside the lock.
BUILD_PACKAGES = ("setuptools",)


def main() -> int:
    """Make or renew the environment; 0 when it is ready, 2 when this machine lacks something."""
    if sys.version_info < PYTHON_VERSION_MIN:
        wanted = ".".join(map(str, PYTHON_VERSION_MIN))
        other = _newer_python()
        if other is None:
            print(
                f"Python {wanted} or newer is needed: install it, or name one with `make PYTHON=...`.", file=sys.stderr
            )
            return 2
        return subprocess.call([other, __file__])
    (ROOT / ".cache").mkdir(exist_ok=True)
    with (ROOT / ".cache" / "environment.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        return _make()


def _make() -> int:
    digest = _digest()
    if STAMP.exists() and STAMP.read_text() == digest and _runs():
        return 0
    started = time.monotonic()
    print("setting up .venv: the locked packages (some minutes the first time)", flush=True)
    if not _runs() and not _create():
        return 2
    STAMP.unlink(missing_ok=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # Byte code is made on first import instead, of what is really imported.
    locked = [*pip, "--no-deps", "--no-compile", "--no-build-isolation", "--require-hashes", "--requirement"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as first:
        first.write(_requirements_of(BUILD_PACKAGES))
        first.flush()
        steps = [
            [*locked, first.name],
            [*locked, str(LOCK)],
            [*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)],
        ]
        for step in steps:
            if subprocess.call(step, cwd=ROOT) != 0:
                print("pip could not install the locked packages; its own words are above.", file=sys.stderr)
                return 2
    STAMP.write_text(digest)
    print(f".venv is ready after {time.monotonic() - started:.0f} s", flush=True)
    return 0


def _digest() -> str:
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    for path in (LOCK, PROJECT, Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _runs() -> bool:
    """Whether the environment's interpreter starts and is of this Python's version."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        return False
    answer = subprocess.run(
        [str(python), "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return answer.returncode == 0 and answer.stdout.split() == [str(part) for part in sys.version_info[:2]]


def _create() -> bool:
    """Create the environment; Debian keeps what that needs in a package of its own."""
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(ENVIRONMENT)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return True
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.call(["apt-get", "update", "-qq"])
        subprocess.call(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "python3-venv"])
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        if subprocess.call(command) == 0:
            return True
    print("`python3 -m venv` does not work here: install your distribution's python3-venv package.", file=sys.stderr)
    return False


def _requirements_of(names: tuple[str, ...]) -> str:
    """The lines of the lock file that pin `names`, hashes included."""
    chosen: list[str] = []
    taking = False
    for line in LOCK.read_text().splitlines(keepends=True):
        if not line.startswith((" ", "#")):
            taking = line.split("==")[0] in names
        if taking and not line.lstrip().startswith("#"):
            chosen.append(line)
    return "".join(chosen)


def _newer_python() -> str | None:
    for minor in range(20, PYTHON_VERSION_MIN[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    return None


if __name__ == "__main__":
    sys.exit(main())
