"""HAProxy as a load balancer before proxies: HTTP/2 on both sides, one stream for each RPC.

    clients --HTTP/2--> 127.0.0.1:plain, or 127.0.0.1:tls --HTTP/2 from SOURCE--> proxies that are healthy

A proxy is healthy while its own health port says so. RPCs go to the proxies in turn, one client's to both of them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority
from thermocline.localstack.child_process import ChildProcess
from thermocline.localstack.loopback_port import free_port
from tooling.system_packages import find_haproxy

__all__ = ["SOURCE", "BalancedProxy", "LoadBalancer", "running_balancer"]

SOURCE = "127.0.0.9"
"""The address that proxies see it come from."""
READY_TIMEOUT_S = 20.0
CONFIG = """\
defaults
    mode http
    timeout connect 2s
    timeout client {idle_s}s
    timeout server {idle_s}s
    timeout http-keep-alive 60s
    option forwardfor
    option redispatch
frontend grpc
    bind 127.0.0.1:{plain_port} proto h2
    bind 127.0.0.1:{tls_port} ssl crt {certificate} alpn h2
    default_backend proxies
backend proxies
    balance {balance}
    option httpchk GET /health
    source {source}
"""
SERVER = (
    "    server proxy-{number} {address} proto h2 check check-proto h1 port {health_port} inter 200ms fall 1 rise 1\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedProxy:
    """Where a proxy serves, and its health port."""

    address: str
    health_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancer:
    """Its ports on 127.0.0.1, and the process."""

    plain_port: int
    tls_port: int
    process: ChildProcess


@contextlib.contextmanager
def running_balancer(
    directory: Path,
    proxies: Sequence[BalancedProxy],
    *,
    plain_port: int,
    idle_s: int = 600,
    balance: str = "roundrobin",
) -> Iterator[LoadBalancer]:
    """Run it until the end. `idle_s`: after how long without a byte it cuts a stream off, in either direction.

    Raises:
        ToolMissingError: There is no HAProxy.
    """
    directory.mkdir(parents=True, exist_ok=True)
    certificate, key = Authority(directory / "tls").issue("b.pem", "b.key", subject="balancer", addresses=["127.0.0.1"])
    both = directory / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    tls_port = free_port()
    text = CONFIG.format(
        idle_s=idle_s, plain_port=plain_port, tls_port=tls_port, certificate=both, balance=balance, source=SOURCE
    )
    for number, proxy in enumerate(proxies):
        text += SERVER.format(number=number, address=proxy.address, health_port=proxy.health_port)
    config = directory / "haproxy.cfg"
    config.write_text(text)
    command = [str(find_haproxy()), "-db", "-f", str(config)]
    process = ChildProcess(command, log_path=directory / "haproxy.log", working_directory=directory)
    try:
        process.wait_until(lambda: _takes(plain_port) and _takes(tls_port), timeout_s=READY_TIMEOUT_S)
        yield LoadBalancer(plain_port=plain_port, tls_port=tls_port, process=process)
    finally:
        process.kill()


def _takes(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
