"""Exposed secrets: warnings of settings with secrets where other users of the machine can read them.

    a flag      every user reads the arguments of a process (`ps`)
    a file      whose mode lets others than its owner read it

One line a start and place; it names the settings, never a value.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Collection
from pathlib import Path

logger = logging.getLogger(__name__)

OTHERS = 0o077
FLAGS = "flag"
"""The place of settings that came by flags."""


def warn_of_place(place: str, names: Collection[str]) -> None:
    """Warn of settings with secrets from one source: by flags, from a file, or from where others cannot read them."""
    if place == FLAGS:
        warn_of_flags(names)
    else:
        warn_of_file(place, names)


def warn_of_flags(names: Collection[str]) -> None:
    """Warn if settings with these names, which hold secrets, came by flags."""
    if names:
        logger.warning(
            "secrets in the arguments of a process can be read by every user of this machine (ps); put them into a "
            "configuration file of mode 0600 settings=%s",
            ",".join(sorted(names)),
        )


def warn_of_file(path: str, names: Collection[str]) -> None:
    """Warn if a file with such settings can be read by others; a path that is no file is passed over."""
    if not names:
        return
    try:
        mode = Path(path).stat().st_mode
    except OSError:  # what reads the file has said so
        return
    if stat.S_ISREG(mode) and mode & OTHERS:
        logger.warning(
            "secrets in a file can be read by other users of this machine; set its mode to 0600 path=%s mode=%04o "
            "settings=%s",
            path,
            stat.S_IMODE(mode),
            ",".join(sorted(names)),
        )
