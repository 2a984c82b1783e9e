"""`python -m thermocline.localstack.serial_moto PORT`: moto's server, one request after another.

moto's own command answers requests in threads, and each looks first whether the key exists and writes it afterwards:
now and then two racing writers both create it. Connections still have threads of their own here; what works on the
objects is under one lock, from the first byte of a request's body to the answer.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def one_at_a_time(application: Application) -> Application:
    """The same application, never in two requests at once."""
    lock = threading.Lock()

    def serve(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environment, start_response))

    return serve


def main(port: int) -> None:
    """Serve on the loopback interface until a signal."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    application = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
