"""Machine memory: how much there is, from which the broker estimates what the page cache can hold."""

import os


def total_memory_bytes() -> int:
    """All memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
