"""Setting field: a field of a settings class with its property name, range and life."""

from dataclasses import field
from typing import Any


def setting(default: Any, name: str, *, least: int | None = None, most: int | None = None, live: bool = False) -> Any:
    """A field with its property name, the range of its values, and whether a running broker follows a change."""
    return field(default=default, metadata={"name": name, "least": least, "most": most, "live": live})
