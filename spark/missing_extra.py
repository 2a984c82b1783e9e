"""What an error says when a package is missing that one of this package's extras brings."""

from __future__ import annotations

__all__ = ["missing_extra"]


def missing_extra(package: str, extra: str) -> str:
    """A sentence without its full stop. The package is not published, so a checkout or a wheel is what pip installs."""
    return f"{package} is not installed: pip install '.[{extra}]' in a checkout, or 'FILE.whl[{extra}]' of a wheel"
