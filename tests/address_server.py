"""AddressServer: what tells clients and brokers where NameServers are, as a real HTTP server; and a zone of names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class AddressServer:
    """Answers every GET with `status` and `text`, and keeps the paths."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 200
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                body = outer.text.encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def domain(self) -> str:
        """`host:port`, as `rocketmq.namesrv.domain` may be."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.domain}/rocketmq/nsaddr"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def address_server(*addresses: str) -> Iterator[AddressServer]:
    server = AddressServer()
    server.text = ";".join(addresses)
    try:
        yield server
    finally:
        server.close()


def name_zone(monkeypatch: pytest.MonkeyPatch, zone: Mapping[str, Sequence[str]]) -> None:
    """Have these names resolve to these addresses, as they stand in `zone` at that time; others as ever."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if host not in zone:
            return resolve(host, port, *args, **kwargs)
        if not zone[host]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for address in zone[host] for found in resolve(address, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
