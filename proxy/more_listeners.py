"""MoreListeners: opens the addresses that a proxy listens on beside its main ones.

Each has the limits of its protocol in common with the main one, and a gate of its own where it takes TLS otherwise.
Stopping: the servers close all their addresses themselves; `close` ends the gates after that.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from thermocline.proxy.http2 import Http2Server
from thermocline.proxy.remoting import RemotingPort
from thermocline.proxy.settings import GRPC, Listeners
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.socket_address import Host, format_address
from thermocline.remoting.tls import TlsGate

__all__ = ["MoreListeners"]

logger = logging.getLogger(__name__)


class MoreListeners:
    """See the module. Belongs to the proxy's event loop."""

    def __init__(self, listeners: Listeners, main_gate: TlsGate, *, tls: TlsConfig, counts: LimitCounts) -> None:
        """`main_gate` serves those that take TLS as the main listeners do; `tls`: the proxy's settings.

        Raises:
            SettingError: A TLS file cannot be used.
        """
        self._listeners = listeners
        self._gates = {tls.server_mode: main_gate}
        self._own_gates: list[TlsGate] = []
        for listener in listeners:
            mode = listener.tls_mode
            if mode is not None and mode not in self._gates:
                gate = self._gates[mode] = TlsGate(replace(tls, server_mode=mode), counts, alpn=("h2",))
                self._own_gates.append(gate)
        self._main_gate = main_gate

    def access_of(self, local_host: Host) -> Host | None:
        """What routes of remoting clients name for clients that are connected to `local_host`; None: the main
        listener's address."""
        listener = self._listeners.of(local_host)
        return None if listener is None else listener.access or (local_host[0], listener.place[1])

    async def start(self, grpc: Http2Server, remoting: RemotingPort | None) -> list[str]:
        """Listen; returns the addresses.

        Raises:
            OSError: One is taken.
        """
        for gate in self._own_gates:
            gate.open()
        addresses = []
        for listener in self._listeners:
            gate = self._main_gate if listener.tls_mode is None else self._gates[listener.tls_mode]
            host, port = listener.place
            if listener.protocol == GRPC:
                await grpc.start(host, port, gate=gate)
            else:
                assert remoting is not None, "settings leave no such listener"
                await remoting.listen(host, port, gate=gate)
            addresses.append(format_address(host, port))
            logger.info("listening protocol=%s address=%s", listener.protocol, addresses[-1])
        return addresses

    def close(self) -> None:
        """End the gates. Idempotent."""
        for gate in self._own_gates:
            gate.close()
