"""Programs that are compiled here once: finding the compiler of a minimum version, and building into the cache.

Only the program is kept. Its file name carries the version, so another pin never meets an old program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from thermocline.localstack.errors import LocalStackError, ToolMissingError

LAST_WORDS_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A command that compiles, its lowest usable version, and the arguments that print its version.

    `version_pattern` finds major and minor number in what `version_arguments` print. `directories` are searched after
    the PATH.
    """

    command: str
    version_min: tuple[int, int]
    version_arguments: Sequence[str]
    version_pattern: str
    directories: Sequence[str]
    wanted: str
    """The sentence for a machine without it."""

    def find(self) -> Path:
        """Where it is.

        Raises:
            ToolMissingError: There is none, or only an older one.
        """
        search = os.pathsep.join([os.environ.get("PATH", ""), *self.directories])
        found = shutil.which(self.command, path=search)
        if found is None:
            raise ToolMissingError(self.wanted)
        answer = subprocess.run([found, *self.version_arguments], capture_output=True, text=True, check=False)
        match = re.match(self.version_pattern, answer.stdout)
        if match is None or (int(match[1]), int(match[2])) < self.version_min:
            raise ToolMissingError(f"{self.wanted} ({found} is {answer.stdout.strip() or 'broken'}.)")
        return Path(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """How a program is compiled: a command line, what it adds to the environment, and where its result will be."""

    command: Sequence[str]
    environment: Mapping[str, str]
    result_directory: Path


def compile_program(target: Path, compilation: Compilation) -> None:
    """Compile the program and put it at `target`, atomically.

    Raises:
        LocalStackError: It failed, or gave anything but one file; the message ends with the compiler's output.
    """
    print(f"building {target.name} with {compilation.command[0]} (once; some minutes)", file=sys.stderr, flush=True)
    build = subprocess.run(
        compilation.command,
        env={**os.environ, **compilation.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    directory = compilation.result_directory
    built = list(directory.iterdir()) if directory.is_dir() else []
    if build.returncode != 0 or len(built) != 1:
        raise LocalStackError(f"{target.name} could not be built:\n{build.stderr[-LAST_WORDS_CHARACTERS_MAX:]}")
    built[0].replace(target)


def build_directory(target: Path) -> tempfile.TemporaryDirectory[str]:
    """A temporary directory on the file system of `target`, which is made fit to take the program."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-")
