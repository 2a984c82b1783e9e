"""Compiled filters by their text, the most recently asked for.

Consumers repeat their expression with every heartbeat, and some with every pull. A text that is no expression is
remembered too, so that repeating it costs nothing.
Source: filter/parser/SelectorParser.java (its cache of 100), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import copy
from collections import OrderedDict

from thermocline.filters.compiled_filter import CompiledFilter, compile_expression
from thermocline.filters.expression_error import ExpressionError
from thermocline.filters.expression_limits import DEFAULT_LIMITS, ExpressionLimits


class CompiledFilterCache:
    """At most `count_max` texts; the one not asked for the longest is dropped. Belongs to one thread."""

    def __init__(self, *, count_max: int = 100, limits: ExpressionLimits = DEFAULT_LIMITS) -> None:
        assert count_max > 0
        self._count_max = count_max
        self._limits = limits
        self._entries: OrderedDict[str, CompiledFilter | ExpressionError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def compile(self, text: str) -> CompiledFilter:
        """`compile_expression(text)`, or what it gave the last time.

        Raises:
            ExpressionTooLargeError: It is beyond one of the limits.
            ExpressionError: It is no expression.
        """
        entry = self._entries.get(text)
        if entry is None:
            entry = self._compile(text)
        else:
            self._entries.move_to_end(text)
        if isinstance(entry, ExpressionError):
            raise copy.copy(entry)  # a new one each time: a raised error collects its traceback
        return entry

    def _compile(self, text: str) -> CompiledFilter | ExpressionError:
        if len(text) > self._limits.expression_chars_max:
            return self._attempt(text)  # too large to be kept, and refused at once
        entry = self._entries[text] = self._attempt(text)
        if len(self._entries) > self._count_max:
            self._entries.popitem(last=False)
        return entry

    def _attempt(self, text: str) -> CompiledFilter | ExpressionError:
        try:
            return compile_expression(text, limits=self._limits)
        except ExpressionError as error:
            return copy.copy(error)  # without traceback, which would hold the frames
