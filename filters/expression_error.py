"""Errors of an expression.

Both leave the broker as SUBSCRIPTION_PARSE_FAILED (23), like every `SubscriptionParseError`.
"""

from __future__ import annotations

from thermocline.remoting.errors import SubscriptionParseError


class ExpressionError(SubscriptionParseError):
    """The text is no filter expression; `position` is the place in it, counted in characters from 0."""

    def __init__(self, message: str, *, position: int, **context: object) -> None:
        super().__init__(message, position=position, **context)
        self.position = position


class ExpressionTooLargeError(ExpressionError):
    """The expression goes beyond one of the `ExpressionLimits`."""
