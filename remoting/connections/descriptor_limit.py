"""Descriptor limit: how many files and connections this process may have open, and a warning when that comes near.

The limit is raised to the hard one at start; processes that are started from then on inherit it. What is open is looked
at from time to time: a low limit is no reason to warn as long as little is open.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable

from thermocline.remoting.errors import InvalidRequestError

logger = logging.getLogger(__name__)

DESCRIPTORS_MOST = 1 << 20
"""The most descriptors of a process by Linux's default (fs.nr_open)."""
CONNECTIONS_MOST = 65_536

WARN_PERCENT = 80
QUIET_PERCENT = 70
"""The warning comes again when less than this was open in between."""

_OPEN_DESCRIPTORS = "/proc/self/fd"


def raise_descriptor_limit(*, files: int, least: int) -> int:
    """Raise the soft limit to the hard one; returns how many connections fit beside so many `files`.

    With a low limit half of it is for connections, whatever `files` is.

    Raises:
        InvalidRequestError: The hard limit is below `least`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MOST if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MOST)
    if allowed < least:
        raise InvalidRequestError(
            "the limit of open files is too low; raise it with `ulimit -Hn`", limit=allowed, needed=least
        )
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return min(CONNECTIONS_MOST, max(allowed // 2, allowed - files))


def descriptor_limit() -> int:
    """The soft limit as it is now."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MOST if soft == resource.RLIM_INFINITY else soft


def open_descriptors() -> int:
    """How many descriptors this process has open; 0 where the system does not tell."""
    try:
        # Linux 6.2 and later tell the number as the folder's size; before that it is 0.
        return os.stat(_OPEN_DESCRIPTORS).st_size or len(os.listdir(_OPEN_DESCRIPTORS))
    except OSError:
        return 0


class DescriptorWatch:
    """Warns when what is open comes near the limit. One caller at a time, on any thread."""

    def __init__(
        self, *, count: Callable[[], int] = open_descriptors, limit: Callable[[], int] = descriptor_limit
    ) -> None:
        self._count = count
        self._limit = limit
        self._is_near = False

    def check(self) -> None:
        """Look at what is open; to be called every few seconds. Before Linux 6.2 it lists all of it."""
        count, limit = self._count(), self._limit()
        if not self._is_near and count * 100 >= limit * WARN_PERCENT:
            self._is_near = True
            logger.warning(
                "open files come near their limit, raise it with `ulimit -Hn` open=%d limit=%d", count, limit
            )
        elif self._is_near and count * 100 < limit * QUIET_PERCENT:
            self._is_near = False
            logger.info("open files are away from their limit again open=%d limit=%d", count, limit)
