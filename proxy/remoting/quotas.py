"""Quotas of the remoting port: its requests count as those of gRPC clients do.

Sends count before they go to a broker, also replies, which brokers store, too; reads (pulls and POPs) as requests when
they come, and by their bytes when they are answered. What is beyond is refused with SYSTEM_BUSY, as brokers refuse it.
Of users nothing counts here: the proxy does not check the signature that a request names one by; brokers do.
"""

from __future__ import annotations

from typing import Protocol

from thermocline.proxy.remoting.request_codes import LONG_POLLS, SENDS, SENDS_WITH_LETTERS
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import Host

__all__ = ["GIVES_MESSAGES", "PortQuotas", "Quotas"]

STORES = SENDS | {RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
GIVES_MESSAGES = LONG_POLLS - {RequestCode.NOTIFICATION}
NO_USER = ""


class Quotas(Protocol):
    """The quotas of a proxy, for clients of every protocol."""

    def check_send(self, topic: str, *, size_bytes: int, host: Host, username: str) -> None:
        """Count a send; BrokerBusyError: it may not pass now."""

    def check_read(self, topic: str, group: str, *, host: Host, username: str) -> None:
        """Count a request for messages; BrokerBusyError: it may not pass now."""

    def took(self, topic: str, group: str, *, size_bytes: int, host: Host, username: str) -> None:
        """Count the bytes of messages that were given out."""


class PortQuotas:
    """See the module. Belongs to the proxy's event loop."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def check(self, connection: Connection, command: RemotingCommand) -> None:
        """Count a request.

        Raises:
            BrokerBusyError: It may not pass now.
        """
        fields, host = command.ext_fields or {}, connection.remote_host
        if command.code in STORES:
            topic = fields.get("b" if command.code in SENDS_WITH_LETTERS else "topic", "")
            self._quotas.check_send(topic, size_bytes=len(command.body), host=host, username=NO_USER)
        elif command.code in GIVES_MESSAGES:
            topic, group = fields.get("topic", ""), fields.get("consumerGroup", "")
            self._quotas.check_read(topic, group, host=host, username=NO_USER)

    def took(self, connection: Connection, topic: str, group: str, size_bytes: int) -> None:
        """Count the bytes of messages that a client is given."""
        self._quotas.took(topic, group, size_bytes=size_bytes, host=connection.remote_host, username=NO_USER)
