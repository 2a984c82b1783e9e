"""Descriptor limit: a broker needs one descriptor a connection and some for its files, and says so at start."""

import logging
import resource

from thermocline.remoting.errors import InvalidRequestError

logger = logging.getLogger(__name__)

DESCRIPTORS_MIN = 1_024
DESCRIPTORS_WANTED = 65_536
DESCRIPTORS_FOR_FILES = 3_000


def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as wanted and allowed; returns how many connections fit beside the files.

    Raises:
        InvalidRequestError: The hard limit is too low for any use.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if allowed < DESCRIPTORS_MIN:
        raise InvalidRequestError(
            "the limit of open files is too low; raise it with `ulimit -Hn`", limit=allowed, needed=DESCRIPTORS_MIN
        )
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < DESCRIPTORS_WANTED:
        logger.warning("few open files allowed limit=%d wanted=%d", allowed, DESCRIPTORS_WANTED)
    return max(DESCRIPTORS_MIN // 2, allowed - DESCRIPTORS_FOR_FILES)
