"""Steps of a client that are repeated while its broker is killed and started again, as official clients go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import UnavailableError

RECONNECT_S = 0.02


async def repeat(
    broker: BrokerProcess,
    step: Callable[[ClientConnection], Awaitable[None]],
    *,
    pause_s: float,
    connect: Callable[[], Awaitable[ClientConnection]] | None = None,
) -> None:
    """Take the step for ever, with `pause_s` between two, on a new connection after each that is lost.

    `connect`: opens one, and tells the broker who this client is.

    Raises:
        Refused: An answer upon which official clients do not try again.
    """
    while True:
        with contextlib.suppress(UnavailableError, OSError):
            connection = await (ClientConnection.open(broker.address) if connect is None else connect())
            try:
                while True:
                    try:
                        await step(connection)
                    except wire.Refused as refused:
                        if refused.code not in wire.TRY_AGAIN:
                            raise
                        await asyncio.sleep(RECONNECT_S)  # the machine is busy: nothing was acknowledged
                    await asyncio.sleep(pause_s)
            finally:
                connection.close()
        await asyncio.sleep(RECONNECT_S)
