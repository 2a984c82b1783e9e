"""Cache of compiled filters by their text, the most recently used ones.

Consumers repeat their expression with every heartbeat, and some with every pull. The error of an invalid
text is cached too, so that repeating it costs nothing.
Source: filter/parser/SelectorParser.java (its cache of 100), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import copy
from collections import OrderedDict

from thermocline.filters.compiled_filter import CompiledFilter, compile_expression, compile_steps
from thermocline.filters.expression_error import ExpressionError
from thermocline.filters.expression_limits import DEFAULT_LIMITS, ExpressionLimits
from thermocline.filters.steps import Steps, run_steps


class CompiledFilterCache:
    """At most `count_max` texts, of `chars_max` characters together; the least recently used one is dropped.

    A character costs up to 60 bytes once it is compiled. Belongs to one thread.
    """

    def __init__(
        self, *, count_max: int = 4_096, chars_max: int = 1 << 20, limits: ExpressionLimits = DEFAULT_LIMITS
    ) -> None:
        assert count_max > 0
        assert chars_max >= limits.expression_chars_max, "the newest text is always kept"
        self._count_max = count_max
        self._chars_max = chars_max
        self._limits = limits
        self._chars = 0
        self._entries: OrderedDict[str, CompiledFilter | ExpressionError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, text: str) -> CompiledFilter | None:
        """The cached result of compiling; None when there is none.

        Raises:
            ExpressionTooLargeError: It has too many characters.
            ExpressionError: It was no expression, or one beyond the limits.
        """
        if len(text) > self._limits.expression_chars_max:
            compile_expression(text, limits=self._limits)  # refused at once, so there is nothing to remember
        entry = self._entries.get(text)
        if entry is None:
            return None
        self._entries.move_to_end(text)
        if isinstance(entry, ExpressionError):
            raise copy.copy(entry)  # a new one each time: a raised error collects its traceback
        return entry

    def compile(self, text: str) -> CompiledFilter:
        """The cached result, else that of `compile_expression(text)`.

        Raises:
            ExpressionTooLargeError: It is beyond one of the limits.
            ExpressionError: It is no expression.
        """
        return run_steps(self.compile_steps(text))

    def compile_steps(self, text: str) -> Steps[CompiledFilter]:
        """The same in steps. After the last one `find` returns the result."""
        found = self.find(text)
        if found is not None:
            return found
        try:
            compiled = yield from compile_steps(text, limits=self._limits)
        except ExpressionError as error:
            self._keep(text, copy.copy(error))  # without traceback, which would hold the frames
            raise
        self._keep(text, compiled)
        return compiled

    def _keep(self, text: str, entry: CompiledFilter | ExpressionError) -> None:
        if text not in self._entries:  # two may have compiled it, step by step
            self._chars += len(text)
        self._entries[text] = entry
        while len(self._entries) > self._count_max or self._chars > self._chars_max:
            oldest, _ = self._entries.popitem(last=False)
            self._chars -= len(oldest)
