"""What several clusters say to one question: the first has its time, the others are left out if they take long.

So a cluster that consumers only read beside another holds that one up for a moment at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from thermocline.remoting.errors import MQError, UnavailableError

__all__ = ["OTHERS_TIMEOUT_S", "ask_clusters"]

OTHERS_TIMEOUT_S = 1.0

T = TypeVar("T")


async def ask_clusters(clusters: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T | MQError]:
    """Ask clusters at the same time: what each one says, or why it does not; in the order given."""
    first, *others = clusters
    found = await asyncio.gather(ask(first), *(_soon(name, ask) for name in others), return_exceptions=True)
    answers: dict[str, T | MQError] = {}
    for name, answer in zip(clusters, found, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, MQError):
            raise answer
        answers[name] = answer
    return answers


async def _soon(cluster: str, ask: Callable[[str], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(OTHERS_TIMEOUT_S):
            return await ask(cluster)
    except TimeoutError as error:
        raise UnavailableError("the cluster does not answer", cluster=cluster) from error
