"""NameServerWatch: looks up the NameServers that this broker registers with, repeatedly, and informs its registration.

    namesrvAddr                                      these addresses
    namesrvAddr, fetchNameSrvAddrByDnsLookup         every address of these names
    neither, fetchNamesrvAddrByAddressServer         what the address server of `namesrvDomain` answers

At start, every `updateNameServerAddrPeriod` (an address server: `fetchNamesrvAddrInterval`), and as soon as one of
these settings changes. When there is no answer, the list stays as it is.
Owner: the hot process's event loop.
Source: broker/BrokerController.java (initializeScheduledTasks, updateNamesrvAddr), Apache RocketMQ 5.5.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.errors import UnavailableError

logger = logging.getLogger(__name__)

SETTINGS = frozenset(
    {
        "namesrvAddr",
        "namesrvDomain",
        "namesrvDomainSubgroup",
        "fetchNameSrvAddrByDnsLookup",
        "fetchNamesrvAddrByAddressServer",
        "fetchNamesrvAddrInterval",
        "updateNameServerAddrPeriod",
    }
)
"""A change of one of these has the list looked up at once."""


class NameServerWatch:
    """One task. `start` once; `close` is idempotent."""

    def __init__(self, *, config: Callable[[], BrokerConfig], follow: Callable[[tuple[str, ...]], None]) -> None:
        """`follow` receives the whole list after each lookup."""
        self._config = config
        self._follow = follow
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._last_error = ""
        self._has_list = False
        self.found = asyncio.Event()
        """Set once the list was looked up with success."""

    def start(self) -> None:
        """Begin; addresses that stand in the settings are followed before it returns."""
        assert self._task is None
        source = self._config().name_server_source
        if source is None or source.is_fixed:
            self._found(() if source is None else source.values)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="look-up of NameServers")

    def look_soon(self) -> None:
        """Look the list up now."""
        self._due.set()

    async def close(self) -> None:
        """Stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            try:
                await self._look_up()
            except Exception:
                # A bug must not have the broker follow its settings no more.
                logger.exception("NameServers not looked up, a bug of ours")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config().name_server_period_ms / 1000):
                    await self._due.wait()
            self._due.clear()

    async def _look_up(self) -> None:
        source = self._config().name_server_source
        try:
            addresses = () if source is None else await source.fetch(has_list=self._has_list)
        except UnavailableError as error:
            if str(error) != self._last_error:
                logger.warning("NameServers not looked up error=%s", error)
            self._last_error = str(error)
            return
        self._last_error = ""
        self._found(addresses)

    def _found(self, addresses: tuple[str, ...]) -> None:
        self._follow(addresses)
        self._has_list = bool(addresses)
        self.found.set()
