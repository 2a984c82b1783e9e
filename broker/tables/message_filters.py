"""Message filters: the SQL92 expressions that consumers subscribe with, compiled.

RocketMQ's broker keeps a filter for each group and topic, made when a heartbeat brings a new expression. Here a filter
is a function of its expression; the group's subscription names it, and compiled ones are kept by text. (The file in
which RocketMQ keeps its filters is kept too, for its own sake: consumer_filter_table.py.)

Rules
  - Compiling takes up to some tens of milliseconds for the largest expressions that are taken at all, so it is done a
    piece at a time in turns of the loop (loop_turns.py), for the first that needs it: the check when an official client
    starts (46), a heartbeat, or a pull. `find` says CompileNeeded, `compile_in_turn` does it. One at a time: `then` of
    all who wait for the same text, then the next text.
  - A filter that was dropped, because too many others were used since, is compiled again.
  - While `enablePropertyFilter` is off nothing is compiled and every other type than TAG is refused.
Belongs to the hot process's loop.
Source: ConsumerFilterManager.java, ClientManageProcessor.java (checkClientConfig), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from thermocline.broker.process import LoopTurns, job_of
from thermocline.filters import CompiledFilter, CompiledFilterCache, Steps, compile_expression
from thermocline.remoting.bodies import EXPRESSION_SQL92, EXPRESSION_TAG
from thermocline.remoting.errors import BrokerBusyError, MQError, SubscriptionParseError

logger = logging.getLogger(__name__)

WAITING_MAX = 1_000
"""Expressions that wait to be compiled; beyond that requests get "the broker is busy"."""
SHOWN_CHARS = 200


class CompileNeeded(Exception):  # noqa: N818 - no failure: the way out of the synchronous path
    """The expression `text`, of a type that is served, has to be compiled first."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def is_tag_type(expression_type: str | None) -> bool:
    """Whether messages are to be chosen by their tag."""
    return not expression_type or expression_type == EXPRESSION_TAG


class MessageFilters:
    """See the module's header."""

    def __init__(self, turns: LoopTurns, *, is_enabled: Callable[[], bool], waiting_max: int = WAITING_MAX) -> None:
        """`is_enabled`: whether messages may be chosen by their properties just now."""
        self._turns = turns
        self._is_enabled = is_enabled
        self._waiting_max = waiting_max
        self._cache = CompiledFilterCache()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._is_compiling = False

    async def prepare(self) -> None:
        """Load what compiling needs, some megabytes and a quarter of a second: before the broker serves with it.

        In a thread, for a broker whose setting is changed serves on meanwhile.
        """
        await asyncio.to_thread(compile_expression, "TRUE")

    def find(self, expression_type: str, text: str) -> CompiledFilter:
        """The filter of an expression.

        Raises:
            CompileNeeded: It is not compiled.
            SubscriptionParseError: The expression is invalid, or its type is unknown.
            MQError: Only tags are served.
        """
        if not self._is_enabled():
            raise MQError(f"The broker does not support consumer to filter message by {expression_type}")
        if expression_type != EXPRESSION_SQL92:
            raise SubscriptionParseError(f"no type of expression: {expression_type[:SHOWN_CHARS]}")
        found = self._cache.find(text)
        if found is None:
            raise CompileNeeded(text)
        return found

    def compile_soon(self, text: str, then: Callable[[], None]) -> bool:
        """Compile when the loop has time for it, or know what is wrong with the text; then call `then`.

        False when too many others wait for that.
        """
        waiting = self._waiting.get(text)
        if waiting is not None:
            waiting.append(then)
            return True
        if len(self._waiting) >= self._waiting_max:
            return False
        self._is_compiling = self._is_compiling or self._turns.add(job_of(self._compile_waiting()))
        if self._is_compiling:
            self._waiting[text] = [then]
        return self._is_compiling

    async def compile_in_turn(self, text: str) -> None:
        """The same, and return when it is done. Cancelling is safe.

        Raises:
            BrokerBusyError: Too many others wait.
        """
        done = asyncio.Event()
        if not self.compile_soon(text, done.set):
            raise BrokerBusyError("too many expressions are to be compiled")
        await done.wait()

    def _compile_waiting(self) -> Iterator[None]:
        """Compile what waits, one after the other, so that one tree at a time is half built."""
        waiting = self._waiting
        while waiting:
            text = next(iter(waiting))
            yield from self._compile(text)
            for then in waiting.pop(text):
                then()
            yield
        self._is_compiling = False

    def _compile(self, text: str) -> Steps[None]:
        try:
            compiled = yield from self._cache.compile_steps(text)
        except SubscriptionParseError as error:
            logger.warning("filter refused expression=%r reason=%s", text[:SHOWN_CHARS], error)
            return
        if compiled.ignored_position is not None:
            # RocketMQ's grammar ends where an expression is complete; the text after that is ignored.
            logger.warning(
                "filter is not read to its end position=%d expression=%r", compiled.ignored_position, text[:SHOWN_CHARS]
            )
