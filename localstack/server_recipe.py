"""Recipe of one S3 server for the launcher: how to install and start it, and when it is ready.

One module per server implements this; `s3_server` does everything that is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The settings of one start."""

    executable: Path
    port: int
    objects_directory: Path
    scratch_directory: Path
    access_key: str
    secret_key: str
    region: str
    certificates_directory: Path | None = None  # serve TLS with the `public.crt` and `private.key` in it


class ServerRecipe(Protocol):
    """One kind of S3 server. Instances hold no state."""

    kind: str
    version: str
    keeps_data: bool  # whether objects are still there after the process was killed and started again
    checks_credentials: bool  # whether a wrong secret is refused
    takes_certificates: bool  # whether it serves TLS with those of a `Launch`
    ready_timeout_s: float

    @property
    def ready_path(self) -> str | None:
        """What answers 200 to a GET as soon as the server serves; None: it serves when it listens."""

    def executable(self, cache_directory: Path) -> Path:
        """Where the program is, once installed."""

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether the program is there: nothing is installed or built by asking."""

    def install(self, cache_directory: Path) -> None:
        """Put the program there. Costs nothing when it is there already.

        Raises:
            ToolMissingError: This machine lacks what it is built with.
            LocalStackError: The build failed.
        """

    def command(self, launch: Launch) -> Sequence[str]:
        """The command line."""

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """Variables added to the environment."""
