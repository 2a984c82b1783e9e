"""Stands between gRPC clients and a server, and writes down what passes: tap.py HOST:PORT FILE.

Run as a program with the wheels of RocketMQ's Python client on its path. Prints "ready PORT". A line of FILE is
{"call": number, "rpc": name, "what": "request" | "answer" | "end", "ms": time, "data": base64 of the message,
"metadata": {name: value} with a request, "status": gRPC's status with an end}. It uses nothing of Thermocline.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

grpc: Any = import_module("grpc")

THREADS = 200
SETTINGS_DELAY_S = 0.5
"""The Node client never starts when its settings come before its last route answer."""
LONGEST_DEADLINE_S = 1e9
"""A call without a deadline has 9e18 s left, which is too much for another call."""
KEPT_METADATA = ("x-mq-client-id", "x-mq-language", "x-mq-client-version", "x-mq-protocol")


class Tap(grpc.GenericRpcHandler):  # type: ignore[misc]  # the package is not typed
    """Relays every RPC as a stream of bytes."""

    def __init__(self, upstream: str, path: str) -> None:
        self._channel = grpc.insecure_channel(upstream, options=[("grpc.max_receive_message_length", -1)])
        self._file = open(path, "w")  # noqa: SIM115  # until the process ends
        self._lock = threading.Lock()
        self._calls = itertools.count(1)

    def service(self, details: Any) -> Any:
        metadata = {name: value for name, value in details.invocation_metadata if name.startswith("x-mq-")}
        kept = {name: metadata[name] for name in KEPT_METADATA if name in metadata}
        rpc = details.method.rpartition("/")[2]
        call = next(self._calls)

        def relay(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            def read() -> Iterator[bytes]:
                for request in requests:
                    self._note(call, rpc, "request", data=base64.b64encode(request).decode(), metadata=kept)
                    yield request

            remaining_s = context.time_remaining()
            upstream = self._channel.stream_stream(details.method)(
                read(),
                metadata=tuple(metadata.items()),
                timeout=None if remaining_s > LONGEST_DEADLINE_S else remaining_s,
            )
            context.add_callback(upstream.cancel)
            context.send_initial_metadata(())  # the Rust client waits for it before it sends settings
            try:
                for answer in upstream:
                    self._note(call, rpc, "answer", data=base64.b64encode(answer).decode())
                    if rpc == "Telemetry":
                        time.sleep(SETTINGS_DELAY_S)
                    yield answer
                self._note(call, rpc, "end", status="OK")
            except grpc.RpcError as error:
                self._note(call, rpc, "end", status=error.code().name)
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(relay)

    def _note(self, call: int, rpc: str, what: str, **more: Any) -> None:
        line = json.dumps({"call": call, "rpc": rpc, "what": what, "ms": time.time_ns() // 1_000_000, **more})
        with self._lock:
            self._file.write(f"{line}\n")
            self._file.flush()


def main() -> None:
    upstream, path = sys.argv[1:]
    server = grpc.server(ThreadPoolExecutor(THREADS), handlers=(Tap(upstream, path),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"ready {port}\n")
    sys.stdout.flush()
    sys.stdin.read()


main()
