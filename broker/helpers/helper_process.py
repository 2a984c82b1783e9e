"""Helper process: start and end of the helper processes.

Start: bind to the parent's life, lower the priority, attach the shared page, connect to the hot process's socket, send
HELLO, get the settings in the answer. End: when the supervisor asks for it (supervisor.py), or when the connection
closes (the hot process is gone, or has taken another helper of this role). A refusal ends it with EXIT_REFUSED, so that
the supervisor does not try again.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from thermocline.broker.helpers.helper_answers import RefusingHandler
from thermocline.broker.helpers.helper_protocol import Hello, HelloReply, HelperRequestCode
from thermocline.broker.helpers.shared_page import SharedPage
from thermocline.broker.helpers.supervisor import EXIT_REFUSED, HELPER_STOP, bind_to_parent
from thermocline.broker.process import configure_logging, current_build_id
from thermocline.broker.process import run as run_loop
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import STOP_SIGNALS, ConnectionLimits, RequestHandler, stop_signals
from thermocline.remoting.errors import FencedError, MQError, UnavailableError
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.files import keep_private

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_MS = 10_000
SOCKET_LIMITS = ConnectionLimits(frame_bytes_max=64 * 1024 * 1024, requests_running_max=4_096)


class HelperOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Command line of a helper."""

    parent_pid: int
    socket_path: str
    page_path: Path


class HelperLink(msgspec.Struct, frozen=True, kw_only=True):
    """A helper's ties to the hot process."""

    connection: ClientConnection
    page: SharedPage
    settings: HelloReply

    def tell(self, code: HelperRequestCode, body: msgspec.Struct) -> None:
        """Send something that needs no answer."""
        self.connection.send_oneway(RemotingCommand.request(code, body=msgspec.msgpack.encode(body), oneway=True))


async def connect(
    options: HelperOptions, *, role: str, handler: RequestHandler, on_closed: Callable[[], None]
) -> HelperLink:
    """Attach, connect and introduce ourselves.

    Raises:
        FencedError: The hot process is of another build or boot.
        UnavailableError: It is not there.
    """
    page = SharedPage.attach(options.page_path)
    connection, settings = await introduce(options, page, role=role, handler=handler, on_closed=on_closed)
    return HelperLink(connection=connection, page=page, settings=msgspec.msgpack.decode(settings, type=HelloReply))


async def introduce(
    options: HelperOptions, page: SharedPage, *, role: str, handler: RequestHandler, on_closed: Callable[[], None]
) -> tuple[ClientConnection, bytes | memoryview]:
    """Connect and send HELLO: the connection, and the role's settings as msgpack. Raises as `connect`."""
    connection = await ClientConnection.open(
        options.socket_path, handler=RefusingHandler(handler), limits=SOCKET_LIMITS, on_closed=lambda _: on_closed()
    )
    hello = Hello(role=role, generation=page.generation, build_id=current_build_id(), pid=os.getpid())
    command = RemotingCommand.request(HelperRequestCode.HELLO, body=msgspec.msgpack.encode(hello))
    response = await connection.call(command, timeout_ms=HELLO_TIMEOUT_MS)
    if response.code != ResponseCode.SUCCESS:
        raise FencedError(response.remark or "refused by the broker", role=role)
    return connection, response.body


def main(role: str, serve: Callable[[HelperOptions, asyncio.Event], Awaitable[None]]) -> None:
    """Entry of a helper's module: `serve` runs until the event is set, or raises what ends the process."""
    parser = argparse.ArgumentParser(prog=f"thermocline {role} process")
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--page", required=True)
    parser.add_argument("--nice", type=int, required=True)
    parser.add_argument("--log-level", default="INFO")
    arguments = parser.parse_args()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    bind_to_parent(arguments.parent_pid)
    keep_private()
    os.nice(arguments.nice)
    configure_logging(arguments.log_level, process_name=role)
    options = HelperOptions(
        parent_pid=arguments.parent_pid, socket_path=arguments.socket, page_path=Path(arguments.page)
    )
    sys.exit(run_loop(_run(role, options, serve)))


async def _run(
    role: str, options: HelperOptions, serve: Callable[[HelperOptions, asyncio.Event], Awaitable[None]]
) -> int:
    try:
        with stop_signals([HELPER_STOP]) as stop, contextlib.suppress(asyncio.CancelledError):
            await serve(options, stop)
    except FencedError as error:
        logger.error("helper cannot work role=%s: %s", role, error)
        return EXIT_REFUSED
    except UnavailableError as error:
        logger.warning("helper ends role=%s: %s", role, error)
        return 1
    except MQError as error:
        logger.error("helper failed role=%s: %s", role, error)
        return 1
    return 0
