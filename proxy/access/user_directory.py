"""UserDirectory: the users that a proxy's clients name, with their policies, as brokers had them a moment ago.

    looked up within `stale_ms_max` x REFRESH_SHARE   given
    older                                             given, and looked up again beside it
    older than `stale_ms_max`                         looked up before it is given; where that fails, an error

Twice in `stale_ms_max` the source is asked whether anything has changed; while nothing has, users count as looked up at
that moment. Where the source has no such answer, each user in use is looked up again.

So no decision is made by what was true longer than `stale_ms_max` ago, a client that sends all the time does not wait
for a look-up, and brokers that cannot be asked end all access within `stale_ms_max`.

A name that no user has is remembered for `stale_ms_max` too, UNKNOWN_MAX of them, apart from users: names come from
strangers. Bounds: `users_max` users, beyond which the one that was used least recently goes; look-ups of names that are
not there, by address and second. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thermocline.proxy.access.account import Account, UserSource
from thermocline.proxy.cluster import LoadingCache
from thermocline.remoting.connections import LimitCounts, client_address
from thermocline.remoting.errors import BrokerBusyError, ObjectNotFoundError, RequestTimeoutError, UnavailableError

__all__ = ["LOOK_UPS_LIMIT", "UserDirectory"]

REFRESH_SHARE = 0.75
WATCHES_PER_PERIOD = 2
NO_VERSION_PAUSE_S = 60.0
"""Before a source without versions is asked again: a broker may have been replaced."""
UNKNOWN_MAX = 1_000
NAME_CHARACTERS_MAX = 1_024
LOOK_UPS_LIMIT = "accessLookUpsPerAddressSecondMax"
PERIOD_MS = 1_000


class _NoUserError(ObjectNotFoundError):
    """There is no user of a name."""


class UserDirectory:
    """See the module."""

    def __init__(
        self,
        source: UserSource,
        *,
        stale_ms_max: int,
        users_max: int,
        address_look_ups_max: int,
        clock_ms: Callable[[], float],
        counts: LimitCounts,
    ) -> None:
        """`address_look_ups_max`: look-ups a second that an address may cause by names that no user has."""
        self._source = source
        self._stale_ms_max = stale_ms_max
        self._address_look_ups_max = address_look_ups_max
        self._clock_ms = clock_ms
        self._counts = counts
        self._accounts: LoadingCache[Account] = LoadingCache(
            self._load,
            refresh_ms=int(stale_ms_max * REFRESH_SHARE),
            expiry_ms=stale_ms_max,
            entries_max=users_max,
            clock_ms=clock_ms,
        )
        self._version: str | None = None
        self._version_since_ms = 0.0
        self._watch: asyncio.Task[None] | None = None
        self._unknown: dict[str, float] = {}
        self._look_ups: dict[str, int] = {}
        self._look_ups_since_ms = 0.0

    async def find(self, username: str, address: str) -> Account | None:
        """Return a user; None where there is none of the name. `address`: of the client that names it.

        Raises:
            BrokerBusyError: This address has caused too many look-ups of names that no user has.
            UnavailableError: No broker could be asked.
        """
        if username in self._accounts:
            is_new = False
        else:
            if len(username) > NAME_CHARACTERS_MAX or self._is_unknown(username):
                return None
            self._count_look_up(address)
            is_new = True
        started_ms = self._clock_ms()
        try:
            account = await self._accounts.get(username)
        except _NoUserError:
            self._remember_unknown(username, started_ms)
            return None
        if is_new:
            self._give_back_look_up(address)
        return account

    def start(self) -> None:
        """Ask for changes from now on."""
        self._watch = asyncio.get_running_loop().create_task(self._watch_changes())

    async def close(self) -> None:
        """Ask no more, and abandon the look-ups under way. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        await self._accounts.close()

    async def look_for_changes(self) -> bool:
        """Ask once whether anything has changed; False when the source has no versions. Runs by itself."""
        if not len(self._accounts):
            return True
        asked_ms = self._clock_ms()
        try:
            version = await self._source.version()
        except UnavailableError:
            return True
        if version is not None and version == self._version:
            self._accounts.confirm(since_ms=self._version_since_ms, at_ms=asked_ms)
        else:
            # What is loaded from now on is of this version, or of a later one.
            self._version, self._version_since_ms = version, self._clock_ms()
        return version is not None

    async def _watch_changes(self) -> None:
        while True:
            has_version = await self.look_for_changes()
            await asyncio.sleep(self._stale_ms_max / WATCHES_PER_PERIOD / 1000 if has_version else NO_VERSION_PAUSE_S)

    async def _load(self, username: str) -> Account:
        try:
            # An answer that takes longer would be older than a decision may be.
            async with asyncio.timeout(self._stale_ms_max / 1000):
                account = await self._source.account(username)
        except TimeoutError as error:
            raise RequestTimeoutError("no broker answered in time what the user may do") from error
        if account is None:
            raise _NoUserError("there is no such user")
        before = self._accounts.peek(username)
        # The same object stays while nothing changes: decisions are remembered by it.
        return before if before is not None and before.is_same(account) else account

    def _is_unknown(self, username: str) -> bool:
        found_ms = self._unknown.get(username)
        return found_ms is not None and self._clock_ms() - found_ms < self._stale_ms_max

    def _remember_unknown(self, username: str, now_ms: float) -> None:
        self._unknown.pop(username, None)
        self._unknown[username] = now_ms
        if len(self._unknown) > UNKNOWN_MAX:
            del self._unknown[next(iter(self._unknown))]

    def _give_back_look_up(self, address: str) -> None:
        network = client_address(address)
        if self._look_ups.get(network):
            self._look_ups[network] -= 1

    def _count_look_up(self, address: str) -> None:
        """Count a look-up of a name that may be no user's, by address or IPv6 network; it is given back for a user."""
        now_ms = self._clock_ms()
        if now_ms - self._look_ups_since_ms >= PERIOD_MS:
            self._look_ups.clear()
            self._look_ups_since_ms = now_ms
        network = client_address(address)
        count = self._look_ups.get(network, 0)
        if count >= self._address_look_ups_max:
            self._counts.refused(LOOK_UPS_LIMIT, address=address, detail="names that no user has")
            raise BrokerBusyError("too many names that no user has come from this address")
        self._look_ups[network] = count + 1
