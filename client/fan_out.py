"""Asking several brokers or NameServers at once: what they answered, and which of them did not.

    answers = await ask_each(masters, ask)         all side by side, each under the deadline of its own requests
    return answers.whole(sorted(answers.values()))

`whole` passes the result on when all have answered. Otherwise it raises `PartialResultError`, which holds the same
result, made of the answers that came, and a `PeerFailure` for each that failed. So a caller that does not look sees an
error, never an incomplete result, and one that does look loses nothing.

    all answered                                           the result
    some answered                                          PartialResultError
    none answered, one was asked or all refused alike      that peer's own error, with its name
    none answered, several were asked                      PartialResultError without `answered`

A peer that refuses (InvalidRequestError and the like) has failed as one has that does not answer: a write that one of
two brokers refuses stands at the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.errors import MQError, UnavailableError

__all__ = ["Answers", "PartialResultError", "Peer", "PeerFailure", "ask_each", "ask_until"]

Peer = BrokerAddress | str
"""A broker, or the address of a NameServer."""
P = TypeVar("P", BrokerAddress, str)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFailure:
    """One broker or NameServer that gave no answer, or refused."""

    broker_name: str | None
    """None: it is a NameServer."""
    address: str
    error: MQError

    @property
    def name(self) -> str:
        """What people call it: a broker's name, a NameServer's address."""
        return self.broker_name or f"NameServer {self.address}"

    def __str__(self) -> str:
        place = f"{self.broker_name} ({self.address})" if self.broker_name else self.name
        what = "gave no answer" if isinstance(self.error, UnavailableError) else "refused"
        return f"{place} {what}: {self.error}"


class PartialResultError(UnavailableError):
    """Some of the brokers or NameServers that were asked failed; the same call may be repeated.

    `result` is what the call would have returned, made of the answers that came: of a write, the names of those that
    have it. `answered` are those that answered, by name; `failures` the others. `result` is None where a part of it is
    of no use, and means nothing when `answered` is empty.
    """

    def __init__(self, *, result: Any, answered: Sequence[str], failures: Sequence[PeerFailure]) -> None:
        sentence = "; ".join(map(str, failures))
        super().__init__(sentence)
        self.result = result
        self.answered = tuple(answered)
        self.failures = tuple(failures)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.result, self.answered, self.failures)


def _rebuild(result: Any, answered: Sequence[str], failures: Sequence[PeerFailure]) -> PartialResultError:
    return PartialResultError(result=result, answered=answered, failures=failures)


class Answers(Generic[P, T]):
    """What was answered, in the order in which the peers were given, and what failed."""

    def __init__(self, by_peer: Mapping[P, T], failures: Sequence[PeerFailure]) -> None:
        self.by_peer: dict[P, T] = dict(by_peer)
        self.failures = tuple(failures)

    def values(self) -> list[T]:
        """The answers alone."""
        return list(self.by_peer.values())

    def names(self) -> list[str]:
        """The names of those that answered."""
        return list(map(_name, self.by_peer))

    def by_name(self) -> dict[str, T]:
        """The answers by the names of those that gave them."""
        return {_name(peer): answer for peer, answer in self.by_peer.items()}

    def whole(self, result: R) -> R:
        """Return `result`, which was made of the answers.

        Raises:
            PartialResultError: A peer failed; it holds `result`.
            MQError: The only peer failed, or all refused for the same reason.
        """
        if not self.failures:
            return result
        first = self.failures[0]
        is_refusal = not any(isinstance(failure.error, UnavailableError) for failure in self.failures)
        are_alike = len({type(failure.error) for failure in self.failures}) == 1
        if not self.by_peer and (len(self.failures) == 1 or (is_refusal and are_alike)):
            raise named(first)
        raise PartialResultError(result=result, answered=self.names(), failures=self.failures)

    def require_all(self) -> None:
        """Pass when all have answered, where a part of the answers is of no use; errors of `whole`."""
        self.whole(None)


async def ask_each(peers: Iterable[P], ask: Callable[[P], Awaitable[T]]) -> Answers[P, T]:
    """Call `ask` for every peer, all at the same time, and return when each has answered or failed with an MQError.

    Bounded by the number of peers, and in time by the deadlines of the requests that `ask` makes. Cancelling is safe.
    """
    asked = list(peers)
    outcomes = await asyncio.gather(*(_outcome(ask(peer)) for peer in asked))
    answers: dict[P, T] = {}
    failures: list[PeerFailure] = []
    for peer, (answer, error) in zip(asked, outcomes, strict=True):
        if error is None:
            answers[peer] = answer  # type: ignore[assignment]  # without an error it is the answer
        else:
            failures.append(failure_of(peer, error))
    return Answers(answers, failures)


async def ask_until(
    peers: Iterable[P], ask: Callable[[P], Awaitable[T]], is_enough: Callable[[T], bool]
) -> Answers[P, T]:
    """As `ask_each`, but return with the first answer that `is_enough`: the calls that are under way are cancelled."""
    asked = {asyncio.ensure_future(ask_each([peer], ask)) for peer in peers}
    answers: dict[P, T] = {}
    failures: list[PeerFailure] = []
    try:
        for next_answers in asyncio.as_completed(asked):
            one = await next_answers
            answers |= one.by_peer
            failures += one.failures
            if any(map(is_enough, one.by_peer.values())):
                break
    finally:
        for call in asked:
            call.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return Answers(answers, failures)


def failure_of(peer: Peer, error: MQError) -> PeerFailure:
    """Return the failure of a peer."""
    if isinstance(peer, str):
        return PeerFailure(broker_name=None, address=peer, error=error)
    return PeerFailure(broker_name=peer.broker_name, address=peer.address, error=error)


def named(failure: PeerFailure) -> MQError:
    """Return a failure's error, which says of which broker it is."""
    if failure.broker_name is not None:
        failure.error.context.setdefault("broker", failure.broker_name)
    failure.error.context.setdefault("address", failure.address)
    return failure.error


async def _outcome(call: Awaitable[T]) -> tuple[T | None, MQError | None]:
    try:
        return await call, None
    except MQError as error:
        return None, error


def _name(peer: Peer) -> str:
    return peer if isinstance(peer, str) else peer.broker_name
