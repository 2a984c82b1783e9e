"""How large an expression may be.

Whatever a client sends, compiling it costs at most some tens of milliseconds once, and evaluating it at most a fraction
of a millisecond a message with values of ordinary length, some milliseconds with the longest that a record holds.
RocketMQ has no limits of its own, so these are far above what people write: several hundred alternatives, and long `IN`
lists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionLimits:
    """Bounds of one expression; one step beyond any of them and it is refused."""

    expression_chars_max: int = 32_768
    """Characters of the whole text, comments included."""
    token_count_max: int = 4_096
    """Words, numbers, strings and signs."""
    term_count_max: int = 1_024
    """Values, names, comparisons, AND, OR, NOT: the steps of one evaluation. A CONTAINS counts for 16."""
    nesting_depth_max: int = 100
    """Parentheses in parentheses, and operators on the results of operators."""
    list_entries_max: int = 1_024
    """Strings in one `IN (...)`."""
    string_chars_max: int = 4_096
    """Characters of one string literal, with its quotes."""

    def __post_init__(self) -> None:
        for limit in (self.expression_chars_max, self.token_count_max, self.term_count_max, self.list_entries_max):
            assert limit > 0
        # Both compiling and evaluating go one call deeper for each level.
        assert 0 < self.nesting_depth_max <= 200
        assert self.string_chars_max >= 2


DEFAULT_LIMITS = ExpressionLimits()
