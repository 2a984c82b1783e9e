"""The blocking half of the SDK: the same objects, driven from ordinary threads.

Everything is written once, as coroutines. A blocking client owns one background thread with one event loop; each of its
methods hands the coroutine of the same name to that loop and waits for the outcome. So both halves share names,
defaults and behaviour by construction, and connections need no locks: only the loop's thread ever touches them.

Rules
  - Any thread may call a blocking client, except its own loop's (a callback that waits for its own loop would never
    end): that is refused.
  - A client belongs to the process that started it: its thread does not survive a fork, so a child's calls are refused.
  - Posts of many threads at the same time wake the loop once: a wake-up costs more than a send.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from thermocline.remoting.errors import ClosedError, InvalidRequestError, MQError

__all__ = ["BackgroundLoop", "BlockingHalf", "blocking"]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncHalf(Protocol):
    """What a blocking half needs of its asyncio half."""

    async def start(self) -> None:
        """Connect and begin to work."""

    async def close(self) -> None:
        """Finish what is under way and release everything; idempotent."""


A = TypeVar("A", bound=AsyncHalf)


class BackgroundLoop:
    """One event loop in one thread of its own. Made by a blocking client, which starts and closes it."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._lock = threading.Lock()
        self._posted: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._wake_up_due = False
        self._process_id = os.getpid()

    def start(self) -> None:
        """Start the thread and return when its loop runs."""
        assert self._thread is None
        self._process_id = os.getpid()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=self._name, daemon=True)
        self._thread.start()
        ready.wait()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run the coroutine on the loop and wait for its result; an interrupt of the waiting thread cancels it.

        Raises:
            ClosedError: The loop does not run, ends meanwhile, or runs in the process that this one was forked from.
            InvalidRequestError: Called from the loop's own thread.
        """
        return self.wait_for(self.begin(coroutine))

    def begin(self, coroutine: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        """Start the coroutine on the loop, for a caller that waits with `wait_for`; errors of `run`."""
        try:
            self.check_may_wait()
            self.check_process()
            with self._lock:  # so that `close` comes before the coroutine is taken, or after
                return asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        except MQError:
            coroutine.close()
            raise

    def wait_for(self, future: concurrent.futures.Future[R]) -> R:
        """Wait for what was begun; an interrupt of the waiting thread cancels it.

        Raises:
            ClosedError: The loop has ended meanwhile.
        """
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ClosedError("the client was closed during the call") from error
        except BaseException:
            future.cancel()
            raise

    def check_may_wait(self) -> None:
        """Pass when the calling thread may wait for this loop.

        Raises:
            InvalidRequestError: It is the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            raise InvalidRequestError("a callback on the client's own thread cannot wait for the client")

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Have `callback(*args)` called on the loop soon, in the order of posting; never waits.

        Raises:
            ClosedError: As `run`.
        """
        self.check_process()
        with self._lock:
            loop = self._running_loop()
            self._posted.append((callback, args))
            if not self._wake_up_due:
                self._wake_up_due = True
                loop.call_soon_threadsafe(self._drain)

    def close(self) -> None:
        """Stop the loop once everything posted has run, and wait for its thread; idempotent."""
        if self._process_id != os.getpid():
            return  # it is the parent's
        with self._lock:
            thread, loop, stop = self._thread, self._loop, self._stop
            self._loop = None
        if thread is not None and loop is not None and stop is not None:
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise ClosedError("the client is not started, or is closed")
        return self._loop

    def check_process(self) -> None:
        """Pass in the process that started the loop.

        Raises:
            ClosedError: A fork has copied it: its thread is not there, so a call would wait for ever.
        """
        if self._thread is not None and self._process_id != os.getpid():
            raise ClosedError("the client was started before a fork; each process starts its own")

    def _drain(self) -> None:
        self._wake_up_due = False  # first: a later post is seen below, or wakes the loop again
        for _ in range(len(self._posted)):
            callback, args = self._posted.popleft()
            callback(*args)

    def _run(self, ready: threading.Event) -> None:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        ready.set()
        await self._stop.wait()
        self._drain()


class BlockingHalf(Generic[A]):
    """Base of the blocking clients: owns the asyncio half and the loop that it runs on."""

    def _adopt(self, inner: A, *, name: str) -> None:
        self._inner = inner
        self._loop = BackgroundLoop(name=name)
        self._started = False

    def start(self) -> None:
        """Connect and begin to work; `with` does this and `close`.

        Raises:
            ClosedError: It was started or closed before.
        """
        if self._started:
            raise ClosedError("a client starts once")
        self._started = True
        self._loop.start()
        try:
            self._loop.run(self._inner.start())
        except BaseException:
            self._loop.close()
            raise

    def close(self) -> None:
        """Finish what is under way and release everything; idempotent."""
        try:
            self._loop.run(self._inner.close())
        except ClosedError:
            return
        self._loop.close()

    def _on_loop(self, function: Callable[[], R]) -> R:
        """Call a function of the asyncio half that is no coroutine, on the loop."""

        async def call() -> R:
            return function()

        return self._loop.run(call())

    def _now_or_on_loop(self, function: Callable[[], R]) -> R:
        """The same for what may also be called before the start."""
        return self._on_loop(function) if self._started else function()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingHalf[Any], P], R]:
    """Make the blocking twin of a coroutine method: same name, parameters, defaults and documentation."""

    @functools.wraps(method)
    def call(half: BlockingHalf[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return half._loop.run(method(half._inner, *args, **kwargs))

    return call


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop when it is installed: a fifth faster for single small requests."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
