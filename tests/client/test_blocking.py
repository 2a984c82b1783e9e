"""The background loop: results, errors, order of posting, refusal to wait for itself."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest

from thermocline.client.blocking import BackgroundLoop, BlockingHalf, blocking
from thermocline.remoting.errors import ClosedError, InvalidRequestError


class AsyncCounter:
    """A little asyncio half."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False

    async def start(self) -> None:
        self.count = 1

    async def close(self) -> None:
        self.closed = True

    async def add(self, amount: int, *, twice: bool = False) -> int:
        """Add and return the sum."""
        await asyncio.sleep(0)
        if amount < 0:
            raise InvalidRequestError(amount=amount)
        self.count += amount * (2 if twice else 1)
        return self.count


class Counter(BlockingHalf[AsyncCounter]):
    def __init__(self) -> None:
        self._adopt(AsyncCounter(), name="counter")

    add = blocking(AsyncCounter.add)


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop(name="test loop")
    loop.start()
    yield loop
    loop.close()


def test_the_blocking_half_waits_for_results_and_raises_errors() -> None:
    with Counter() as counter:
        assert counter.add(2, twice=True) == 5
        with pytest.raises(InvalidRequestError, match="amount=-1"):
            counter.add(-1)


def test_the_blocking_half_keeps_signature_and_documentation() -> None:
    assert str(inspect.signature(Counter.add)) == str(inspect.signature(AsyncCounter.add))
    assert Counter.add.__doc__ == AsyncCounter.add.__doc__
    assert not inspect.iscoroutinefunction(Counter.add)


def test_close_is_idempotent_and_final() -> None:
    counter = Counter()
    counter.start()
    inner = counter._inner
    counter.close()
    counter.close()
    assert inner.closed
    with pytest.raises(ClosedError):
        counter.add(1)
    with pytest.raises(ClosedError):
        counter.start()


def test_a_client_that_is_not_started_raises_an_error() -> None:
    with pytest.raises(ClosedError):
        Counter().add(1)


def test_posts_from_many_threads_all_arrive_in_each_threads_order(loop: BackgroundLoop) -> None:
    seen: list[tuple[int, int]] = []
    threads = [
        threading.Thread(target=lambda n=n: [loop.post(seen.append, (n, i)) for i in range(500)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = threading.Event()
    loop.post(done.set)
    assert done.wait(10)
    assert len(seen) == 2000
    for n in range(4):
        assert [i for thread_number, i in seen if thread_number == n] == list(range(500))


def test_the_loops_own_thread_may_not_wait_for_it(loop: BackgroundLoop) -> None:
    outcome: list[BaseException] = []
    done = threading.Event()

    def wait_for_myself() -> None:
        try:
            loop.run(asyncio.sleep(0))
        except InvalidRequestError as error:
            outcome.append(error)
        done.set()

    loop.post(wait_for_myself)
    assert done.wait(10)
    assert len(outcome) == 1


def test_a_call_under_way_when_the_client_closes_is_an_error(loop: BackgroundLoop) -> None:
    outcome: list[ClosedError] = []
    began = threading.Event()

    async def wait_for_ever() -> None:
        began.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            loop.run(wait_for_ever())
        except ClosedError as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert began.wait(10)
    loop.close()
    thread.join(10)
    assert len(outcome) == 1


def test_a_client_that_a_fork_has_copied_refuses_calls(loop: BackgroundLoop) -> None:
    """Its thread is not there in the child; a call waited for ever."""

    def outcome() -> bytes:
        calls: list[Callable[[], object]] = [lambda: loop.run(asyncio.sleep(0)), functools.partial(loop.post, print)]
        for call in calls:
            try:
                call()
            except ClosedError:
                continue
            return b"called"
        loop.close()
        return b"refused"

    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: that is the case here
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.write(writer, outcome())
        os._exit(0)
    os.close(writer)
    try:
        assert os.read(reader, 100) == b"refused"
    finally:
        os.close(reader)
        os.waitpid(child, 0)
    loop.run(asyncio.sleep(0))
