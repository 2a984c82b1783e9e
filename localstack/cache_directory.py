"""Where built servers are kept.

In a checkout: `.cache/` beside the sources, so that removing the checkout removes all of it. From an installed package:
`thermocline/` under the user's cache directory. Names inside carry the version, so nothing in it ever goes stale.
"""

from __future__ import annotations

from pathlib import Path


def default_cache_directory() -> Path:
    """The cache directory of this checkout, or of this user when there is no checkout."""
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache"
    return Path.home() / ".cache" / "thermocline"
