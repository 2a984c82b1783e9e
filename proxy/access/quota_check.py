"""QuotaCheck: bytes and requests a second of what passes a proxy, by topic, group, client address and user.

The quotas are a setting of the proxy, in the form of a broker's (auth/quota_texts.py), for what passes this proxy.
Brokers see the proxy's address and the proxy's user: their quotas of topics and groups hold for a proxy's clients, too,
those of addresses and users only here. A producer's group is its topic, as brokers see it.
Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.remoting.records.message_record import encode_host
from thermocline.remoting.socket_address import Host

__all__ = ["QuotaCheck"]


class QuotaCheck:
    """See the module."""

    def __init__(self, text: str, *, clock_s: Callable[[], float]) -> None:
        """`text`: the setting, which can be read; empty: no quotas. `clock_s`: seconds, never stepping back."""
        self._text = text
        self._table = QuotaTable(text=lambda: self._text, clock=clock_s)
        self._buckets = self._table.current()

    def change(self, text: str) -> None:
        """Let other quotas count, which can be read; those that stay as they are keep what was taken from them."""
        self._text = text
        self._buckets = self._table.current()

    @property
    def refusals(self) -> Mapping[tuple[str, str], int]:
        """Refusals since the start by kind and name; of names without a quota of their own by `*`."""
        return self._table.refusals

    def check_send(self, topic: str, *, size_bytes: int, host: Host, username: str) -> None:
        """Count a send of so many bytes. `username`: "" where none was proven.

        Raises:
            BrokerBusyError: It may not pass now.
        """
        if self._buckets is not None:
            self._buckets.check_send(topic, topic, encode_host(host), size_bytes, username)

    def check_read(self, topic: str, group: str, *, host: Host, username: str) -> None:
        """Count a request for messages.

        Raises:
            BrokerBusyError: It may not pass now.
        """
        if self._buckets is not None:
            address = encode_host(host)
            self._buckets.check_read(topic, group, address, username)
            self._buckets.took(topic, group, address, username, requests=1, size_bytes=0)

    def took(self, topic: str, group: str, *, size_bytes: int, host: Host, username: str) -> None:
        """Count the bytes of messages that were given out."""
        if self._buckets is not None:
            self._buckets.took(topic, group, encode_host(host), username, requests=0, size_bytes=size_bytes)
