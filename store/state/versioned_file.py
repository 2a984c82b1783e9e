"""Versioned file: a small JSON file of the store whose layout has a version."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.store.files import Disk


class Versioned(Protocol):
    """A struct of such a file."""

    @property
    def format_version(self) -> int:
        """The version of its layout."""
        ...


Content = TypeVar("Content", bound=Versioned)


def load_versioned(disk: Disk, path: str, kind: type[Content], *, version: int, name: str) -> Content | None:
    """Read the file; None if there is none. `name`: what it is of the store, for errors.

    Raises:
        CorruptDataError: The file is damaged, or of another version than `version`.
    """
    if not disk.exists(path):
        return None
    try:
        content = msgspec.json.decode(disk.read(path), type=kind)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"the store's {name} is damaged", path=path) from error
    if content.format_version != version:
        raise CorruptDataError(f"the store's {name} is of another version", path=path, version=content.format_version)
    return content
