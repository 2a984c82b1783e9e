"""Stop signals: SIGTERM and SIGINT ask a process to stop; further ones have no effect while it ends.

An event loop closes its pipe for signals before it removes its handlers: a signal between the two is a traceback on
stderr, and one behind them ends the process by its default action, with another exit status than the first one asked
for. So both signals are ignored before the loop closes.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """The event that the first stop signal sets; call in the main thread's running loop.

    Behind this block the process ignores both signals: it is the last thing that the process does.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
