"""Two proxies before one cluster, each of which can be ended and started again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.interop.cluster import FREE_PORT
from tests.interop.proxy_daemons import running_proxy


class TwoProxies:
    """Two proxies, each of which can be ended and started again at its address."""

    def __init__(
        self,
        namesrv: str,
        directory: Path,
        settings: Mapping[str, str],
        *,
        addresses: Sequence[str] = (FREE_PORT, FREE_PORT),
        own_settings: Sequence[Mapping[str, str]] = ({}, {}),
    ) -> None:
        """`settings`: of both; `own_settings`: of each."""
        self.addresses = list(addresses)
        self._settings = [{**settings, **own} for own in own_settings]
        self._namesrv = namesrv
        self._directory = directory
        self._running: list[contextlib.ExitStack | None] = [None, None]

    def __enter__(self) -> Self:
        for index in range(2):
            self.start(index, is_killed=False)
        return self

    def __exit__(self, *_: object) -> None:
        for index in range(2):
            self.end(index)

    def start(self, index: int, *, is_killed: bool) -> None:
        """Start it, and return when it serves. `is_killed`: how it is to end."""
        stack = contextlib.ExitStack()
        self.addresses[index], _ = stack.enter_context(
            running_proxy(
                self._directory / f"proxy-{index}",
                namesrv=self._namesrv,
                settings=self._settings[index],
                listen=self.addresses[index],
                is_killed=is_killed,
            )
        )
        self._running[index] = stack

    def end(self, index: int) -> None:
        stack, self._running[index] = self._running[index], None
        if stack is not None:
            stack.close()
