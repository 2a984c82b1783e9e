"""Watches which addresses of this machine are connected to while a test runs, as the system shows its connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

ESTABLISHED = "01"
INTERVAL_S = 0.02


@contextlib.contextmanager
def hosts_connected_at(port: int) -> Iterator[set[str]]:
    """The IPv4 addresses at which connections to a listening port were seen; complete at the end."""
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL_S):
            seen.update(_hosts(port))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _hosts(port: int) -> Iterator[str]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        host, _, local_port = local.partition(":")
        if state == ESTABLISHED and int(local_port, 16) == port:
            yield socket.inet_ntoa(struct.pack("=I", int(host, 16)))
