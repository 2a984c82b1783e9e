"""Quota buckets: bytes and requests a second of topics, groups, client addresses and users, as `quotas` has them.

    send    take_send(topic, producer group, address, bytes, user)    taken when every bucket that counts has a token
    read    check_read(topic, consumer group, address, user)          the same, before a pull or POP is served
            took(requests, bytes)                                     what was given out is counted afterwards

Rules
  - A bucket holds `burstSeconds` of its rate at most. A request passes while a token is left, whatever its size, and
    what it takes beyond that is owed: so a message larger than the bucket passes too, and the rate is kept.
  - A bucket is one time, `full_s`: when it is full again if nothing more is taken. Taking n tokens moves it by n times
    the interval of a token; so nothing is refilled, and a check is a comparison.
  - A quota for `*` makes a bucket for each name that comes. Of OTHERS_MAX names those go whose bucket is full, as they
    have not been limited lately; if there are none, further names share one bucket. So do names of more than
    NAME_CHARACTERS_MAX characters, which no quota of its own can have: they are not checked yet when they are counted.
  - Without quotas `current()` is None, and nothing else is asked. A change of the setting keeps the buckets of quotas
    that stay as they are.
  - Sends, replies, pulls, POPs and peeks are counted; other requests are not. A send that fails otherwise has been
    counted.
  - A user is one that the request's signature proved; empty without such a one, and then no user's quota counts.
Owner: one event loop.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping

from thermocline.auth.quota_texts import ADDRESS, EACH, GROUP, NAME_CHARACTERS_MAX, TOPIC, USER, Quota, parse_quotas
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.records.record_layout import HOST_V4_BYTES

OTHERS_MAX = 10_000
IDLE_CHECK_S = 1.0
IPV4_BYTES = 4
IPV6_NETWORK_BYTES = 8
_ROUNDING_S = 1e-9
"""The last token of a bucket is not lost to the rounding of times."""

Key = str | bytes


class Bucket:
    """Tokens that come at a rate."""

    __slots__ = ("ahead_s", "full_s", "interval_s")

    def __init__(self, rate: int, burst_seconds: int) -> None:
        self.interval_s = 1 / rate
        self.ahead_s = burst_seconds - self.interval_s
        """How far `full_s` may be ahead while a token is left."""
        self.full_s = 0.0

    def has_token(self, now_s: float) -> bool:
        """Whether a request may pass."""
        return self.full_s - self.ahead_s <= now_s + _ROUNDING_S

    def take_tokens(self, tokens: int, now_s: float) -> None:
        """Take tokens, or give them back when below 0."""
        self.full_s = max(self.full_s, now_s) + tokens * self.interval_s


class Account:
    """The buckets of one name: those of requests first, then those of bytes."""

    __slots__ = ("kind", "name", "read", "send")

    def __init__(self, kind: str, name: str, quota: Quota) -> None:
        self.kind = kind
        self.name = name

        def buckets(*rates: int) -> tuple[Bucket | None, ...]:
            return tuple(Bucket(rate, quota.burst_seconds) if rate else None for rate in rates)

        self.send = buckets(quota.send_requests, quota.send_bytes)
        self.read = buckets(quota.read_requests, quota.read_bytes)

    def may_send(self, now_s: float) -> bool:
        """Whether a send may pass."""
        return all(bucket is None or bucket.has_token(now_s) for bucket in self.send)

    def may_read(self, now_s: float) -> bool:
        """Whether a pull or a POP may pass."""
        return all(bucket is None or bucket.has_token(now_s) for bucket in self.read)

    def took(self, requests: int, size_bytes: int, now_s: float) -> None:
        """Take tokens for reads."""
        for bucket, tokens in zip(self.read, (requests, size_bytes), strict=True):
            if bucket is not None:
                bucket.take_tokens(tokens, now_s)

    def is_full(self, now_s: float) -> bool:
        """Whether nothing was taken from any bucket lately."""
        return all(bucket is None or bucket.full_s <= now_s for bucket in (*self.send, *self.read))


class _Kind:
    """The accounts of one kind: those with a quota of their own, and those that the quota for `*` makes."""

    __slots__ = ("_looked_s", "accounts", "kind", "others_quota", "rest")

    def __init__(self, kind: str, others_quota: Quota | None) -> None:
        self.kind = kind
        self.accounts: dict[Key, Account] = {}
        self.others_quota = others_quota
        self.rest: Account | None = None
        """Shared by names for which there is no room."""
        self._looked_s = float("-inf")

    def find(self, key: Key, now_s: float) -> Account | None:
        account = self.accounts.get(key)
        if account is not None or self.others_quota is None:
            return account
        if len(self.accounts) >= OTHERS_MAX:
            self._drop_idle(now_s)
        if len(self.accounts) >= OTHERS_MAX or len(key) > NAME_CHARACTERS_MAX:
            if self.rest is None:
                self.rest = Account(self.kind, EACH, self.others_quota)
            return self.rest
        account = self.accounts[key] = Account(self.kind, EACH, self.others_quota)
        return account

    def _drop_idle(self, now_s: float) -> None:
        if now_s - self._looked_s < IDLE_CHECK_S:
            return
        self._looked_s = now_s
        idle = [key for key, each in self.accounts.items() if each.name == EACH and each.is_full(now_s)]
        for key in idle:
            del self.accounts[key]


class QuotaBuckets:
    """All quotas of one setting. `address` is a peer's as a record holds it (`Connection.remote_host_bytes`)."""

    def __init__(
        self, kinds: Iterable[_Kind], *, clock: Callable[[], float], refusals: dict[tuple[str, str], int]
    ) -> None:
        self._kinds = self._topics, self._groups, self._addresses, self._users = tuple(kinds)
        self._clock = clock
        self._refusals = refusals
        # What sends of a topic, a group, a peer and a user take from: buckets of requests, and of bytes.
        self._of_sends: dict[tuple[str, str, bytes, str], tuple[list[Bucket], list[Bucket]]] = {}

    def take_send(self, topic: str, group: str, address: bytes, size_bytes: int, user: str = "") -> bool:
        """Count a send, if it may pass. On the fast path."""
        now_s = self._clock()
        found = self._of_sends.get((topic, group, address, user))
        if found is None:
            found = self._find_buckets(topic, group, address, user, now_s)
        requests, bytes_ = found
        for bucket in requests:
            if bucket.full_s - bucket.ahead_s > now_s + _ROUNDING_S:
                return False
        for bucket in bytes_:
            if bucket.full_s - bucket.ahead_s > now_s + _ROUNDING_S:
                return False
        for bucket in requests:
            full_s = bucket.full_s
            bucket.full_s = (full_s if full_s > now_s else now_s) + bucket.interval_s
        for bucket in bytes_:
            full_s = bucket.full_s
            bucket.full_s = (full_s if full_s > now_s else now_s) + size_bytes * bucket.interval_s
        return True

    def return_send(self, topic: str, group: str, address: bytes, size_bytes: int, user: str = "") -> None:
        """A send that was counted is left to other code, which counts it again."""
        now_s = self._clock()
        requests, bytes_ = self._find_buckets(topic, group, address, user, now_s)
        for bucket in requests:
            bucket.take_tokens(-1, now_s)
        for bucket in bytes_:
            bucket.take_tokens(-size_bytes, now_s)

    def check_send(self, topic: str, group: str, address: bytes, size_bytes: int, user: str = "") -> None:
        """Count a send.

        Raises:
            BrokerBusyError: It may not pass now.
        """
        if not self.take_send(topic, group, address, size_bytes, user):
            accounts = self._find(topic, group, address, user, self._clock())
            now_s = self._clock()
            # Without one a token has come in between; the producer's next attempt finds it.
            blocking = next((account for account in accounts if not account.may_send(now_s)), accounts[0])
            raise self._refused(blocking)

    def check_read(self, topic: str, group: str, address: bytes, user: str = "") -> None:
        """Pass a pull or a POP.

        Raises:
            BrokerBusyError: It may not pass now.
        """
        now_s = self._clock()
        for account in self._find(topic, group, address, user, now_s):
            if not account.may_read(now_s):
                raise self._refused(account)

    def took(self, topic: str, group: str, address: bytes, user: str = "", *, requests: int, size_bytes: int) -> None:
        """Count a pull or a POP that was answered with so many bytes."""
        now_s = self._clock()
        for account in self._find(topic, group, address, user, now_s):
            account.took(requests, size_bytes, now_s)

    def _find_buckets(
        self, topic: str, group: str, address: bytes, user: str, now_s: float
    ) -> tuple[list[Bucket], list[Bucket]]:
        if len(self._of_sends) >= OTHERS_MAX:
            self._of_sends.clear()
        accounts = self._find(topic, group, address, user, now_s)
        requests, bytes_ = ([bucket for each in accounts if (bucket := each.send[which])] for which in (0, 1))
        is_short = len(topic) + len(group) + len(user) <= 3 * NAME_CHARACTERS_MAX
        if is_short and not any(account in (kind.rest for kind in self._kinds) for account in accounts):
            self._of_sends[topic, group, address, user] = requests, bytes_
        return requests, bytes_

    def _find(self, topic: str, group: str, address: bytes, user: str, now_s: float) -> list[Account]:
        network = address[:IPV4_BYTES] if len(address) == HOST_V4_BYTES else address[:IPV6_NETWORK_BYTES]
        kinds: list[tuple[_Kind, Key]] = [
            (self._topics, topic),
            (self._groups, group),
            (self._addresses, network),
        ]
        if user:
            kinds.append((self._users, user))
        accounts = []
        for kind, key in kinds:
            before = len(kind.accounts)
            account = kind.find(key, now_s)
            if account is not None:
                accounts.append(account)
            if len(kind.accounts) < before:
                self._of_sends.clear()  # idle accounts have gone
        return accounts

    def _refused(self, account: Account) -> BrokerBusyError:
        key = account.kind, account.name
        self._refusals[key] = self._refusals.get(key, 0) + 1
        return BrokerBusyError(_text(account.kind, account.name))


def _text(kind: str, name: str) -> str:
    return f"[QUOTA]system busy, the quota of {kind} {name} is used up"


class QuotaTable:
    """The quotas as the setting has them now."""

    def __init__(self, *, text: Callable[[], str], clock: Callable[[], float]) -> None:
        """`text`: the setting as it is now. `clock`: seconds, never stepping back."""
        self._current_text = text
        self._clock = clock
        self._text = ""
        self._quotas: Mapping[tuple[str, str], Quota] = {}
        self._kinds: dict[str, _Kind] = {}
        self._buckets: QuotaBuckets | None = None
        self.refusals: dict[tuple[str, str], int] = {}
        """Refusals since the start by kind and name; of names without a quota of their own by `*`."""

    def current(self) -> QuotaBuckets | None:
        """The buckets; None without quotas."""
        text = self._current_text()
        if text is not self._text:
            self._follow(text)
        return self._buckets

    def _follow(self, text: str) -> None:
        quotas = parse_quotas(text)
        kinds: dict[str, _Kind] = {}
        for kind in (TOPIC, GROUP, ADDRESS, USER):
            others_quota = quotas.get((kind, EACH))
            table = kinds[kind] = _Kind(kind, others_quota)
            before = self._kinds.get(kind)
            if before is not None and before.others_quota == others_quota:
                table.rest = before.rest
                table.accounts.update({key: each for key, each in before.accounts.items() if each.name == EACH})
        for (kind, name), quota in quotas.items():
            if name == EACH:
                continue
            key = _address_key(name) if kind == ADDRESS else name
            before = self._kinds.get(kind)
            present = None if before is None else before.accounts.get(key)
            is_same = present is not None and present.name == name and self._quotas.get((kind, name)) == quota
            kinds[kind].accounts[key] = present if is_same and present else Account(kind, name, quota)
        self._text, self._quotas, self._kinds = text, quotas, kinds
        tables = (kinds[TOPIC], kinds[GROUP], kinds[ADDRESS], kinds[USER])
        self._buckets = QuotaBuckets(tables, clock=self._clock, refusals=self.refusals) if quotas else None


def _address_key(name: str) -> bytes:
    """The bytes by which an address, or an IPv6 network, is found."""
    network = ipaddress.ip_network(name)
    packed = network.network_address.packed
    return packed if network.version == 4 else packed[:IPV6_NETWORK_BYTES]
