"""Releases of this product: this tree, and earlier ones, taken out of the repository's history."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Release:
    """A release whose programs can be run by this Python."""

    name: str
    source: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables under which `python -m thermocline.cli`, and what it starts, is of this release."""
        return {"PYTHONPATH": str(self.source / "src")}


def this_release() -> Release:
    """The tree that the tests are in."""
    return Release("this", ROOT)


def released(commit: str, folder: Path) -> Release:
    """The release at a commit, unpacked into `folder`. It runs on the packages that this release needs.

    Raises:
        LookupError: The repository has no such commit, or this is no repository.
    """
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if packed.returncode:
        raise LookupError(packed.stderr.decode())
    archive = folder / "release.tar"
    archive.write_bytes(packed.stdout)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "source", filter="data")
    archive.unlink()
    return Release(commit, folder / "source")
