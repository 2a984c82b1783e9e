"""Request expressions: which messages the expression in a pull or a POP asks for.

TAG, or no type     codes of tags; none for all messages
SQL92               a filter on properties, see message_filters.py

Bounds: an expression of tags has at most TAGS_CHARS_MAX characters, as the loop reads it in one go; of those that are
remembered, EXPRESSIONS_KEPT_MAX and CHARS_KEPT_MAX characters together: beyond, all are forgotten.
"""

from __future__ import annotations

import msgspec

from thermocline.broker.tables import MessageFilters, is_tag_type
from thermocline.filters import CompiledFilter
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.errors import SubscriptionParseError

EXPRESSIONS_KEPT_MAX = 10_000
CHARS_KEPT_MAX = 1 << 20
TAGS_CHARS_MAX = 32_768
"""As of an expression on properties."""


class Wanted(msgspec.Struct, frozen=True):
    """`codes` of tags, or a filter on `properties`. Neither: all messages; never both."""

    codes: frozenset[int] | None = None
    properties: CompiledFilter | None = None


ALL = Wanted()


class RequestExpressions:
    """Reads expressions, and remembers those of tags. On the loop."""

    def __init__(self, filters: MessageFilters) -> None:
        self._filters = filters
        self._tags: dict[str, Wanted] = {}
        self._chars = 0

    def read(self, topic: str, expression: str, expression_type: str | None) -> Wanted:
        """The messages that an expression selects.

        Raises:
            CompileNeeded: It has to be compiled first.
            SubscriptionParseError: It is none.
            MQError: Only tags are served.
        """
        if not is_tag_type(expression_type):
            assert expression_type
            try:
                return Wanted(properties=self._filters.find(expression_type, expression))
            except SubscriptionParseError as error:
                raise SubscriptionParseError(f"parse the consumer's subscription failed: {error}") from error
        try:
            return self._tags[expression]
        except KeyError:
            pass
        if len(expression) > TAGS_CHARS_MAX:
            raise SubscriptionParseError(
                f"parse the consumer's subscription failed: more than {TAGS_CHARS_MAX} characters"
            )
        try:
            wanted = Wanted(frozenset(parse_subscription(topic, expression).code_set) or None)
        except SubscriptionParseError as error:
            raise SubscriptionParseError("parse the consumer's subscription failed") from error
        if len(self._tags) >= EXPRESSIONS_KEPT_MAX or self._chars + len(expression) > CHARS_KEPT_MAX:
            self._tags.clear()
            self._chars = 0
        self._tags[expression] = wanted
        self._chars += len(expression)
        return wanted
