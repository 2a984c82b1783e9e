"""SQL92 message filters: select the messages of a topic for a group, by their properties.

    compiled = compile_expression("TAGS IN ('red', 'blue') AND price BETWEEN 10 AND 20")
    compiled.matches({"TAGS": "red", "price": "12"})     True

An expression means what it means to Apache RocketMQ's broker; `expression_parser.py` has the grammar,
`expression_evaluator.py` the logic. A message matches when the result is true: null, false and an evaluation that
RocketMQ would have to give up are no match.
Source: filter/SqlFilter.java, broker/filter/ExpressionMessageFilter.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.filters.expression_evaluator import EvaluateCondition, Properties, Verdict, compile_condition
from thermocline.filters.expression_limits import DEFAULT_LIMITS, ExpressionLimits
from thermocline.filters.java_numbers import EvaluationError
from thermocline.filters.steps import Steps, run_steps
from thermocline.remoting.records.properties import decode_properties, find_property


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFilter:
    """A compiled expression; belongs to no thread, holds no state."""

    text: str
    property_names: frozenset[str]
    """Names that the expression looks at."""
    ignored_position: int | None
    """Where the text goes on after the expression's end, unread, as in RocketMQ; worth a warning to its author."""
    _evaluate: EvaluateCondition = field(repr=False, compare=False)
    _only_name: str | None = field(repr=False, compare=False)

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        try:
            return self._evaluate(properties) is True
        except EvaluationError:
            return False

    def matches_text(self, properties_text: bytes) -> bool:
        """The same, from the property text as it is stored in a record."""
        if self._only_name is None:
            return self.matches(decode_properties(properties_text))
        # One property is found in half the time; two take as long as decoding all.
        value = find_property(properties_text, self._only_name.encode())
        return self.matches({} if value is None else {self._only_name: value.decode("utf-8", "replace")})

    def evaluate(self, properties: Properties) -> Verdict:
        """True, False, or None for null.

        Raises:
            EvaluationError: Values met that RocketMQ cannot compare.
        """
        return self._evaluate(properties)


def compile_expression(text: str, *, limits: ExpressionLimits = DEFAULT_LIMITS) -> CompiledFilter:
    """Compile an expression. The first call of a process takes up to 200 ms more; any text will do for it.

    Raises:
        ExpressionTooLargeError: It is beyond one of the limits.
        ExpressionError: It is no expression.
    """
    return run_steps(compile_steps(text, limits=limits))


def compile_steps(text: str, *, limits: ExpressionLimits = DEFAULT_LIMITS) -> Steps[CompiledFilter]:
    """`compile_expression` in steps of some microseconds; the last one may take a millisecond or two."""
    # The parser's library takes some megabytes and some tens of milliseconds: who has no such filter does not pay.
    from thermocline.filters.expression_parser import parse_steps

    parsed = yield from parse_steps(text, limits=limits)
    names = parsed.property_names
    return CompiledFilter(
        text=text,
        property_names=names,
        ignored_position=parsed.ignored_position,
        _evaluate=compile_condition(parsed.root),
        _only_name=next(iter(names)) if len(names) == 1 else None,
    )
