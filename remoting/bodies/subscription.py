"""Subscription expressions: which messages of a topic a group wants.

A TAG expression is `*` (or nothing) for all, else tags joined by `||`; a broker compares hashes of tags, the client
then the tags themselves. Any other expression type is kept as it is.
Source: FilterAPI.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.bodies.client import EXPRESSION_TAG, SUBSCRIBE_ALL, SubscriptionData
from thermocline.remoting.errors import SubscriptionParseError
from thermocline.remoting.string_hash import tags_code

_OR = "||"


def parse_subscription(
    topic: str, expression: str | None, *, expression_type: str | None = None, version: int = 0
) -> SubscriptionData:
    """The subscription that an expression stands for.

    Raises:
        SubscriptionParseError: A TAG expression of nothing but `||`, or another type without expression.
    """
    if expression_type in (None, "", EXPRESSION_TAG):
        return _parse_tags(topic, expression, version)
    assert expression_type is not None
    if not expression:
        raise SubscriptionParseError("Expression can't be null!", expression_type=expression_type)
    return SubscriptionData(topic=topic, sub_string=expression, expression_type=expression_type, sub_version=version)


def _parse_tags(topic: str, expression: str | None, version: int) -> SubscriptionData:
    if not expression or expression == SUBSCRIBE_ALL:
        return SubscriptionData(topic=topic, sub_string=SUBSCRIBE_ALL, sub_version=version)
    if not expression.replace("|", "") and len(expression) % 2 == 0:
        raise SubscriptionParseError("subString split error", expression=expression)
    tags = {tag for piece in expression.split(_OR) if (tag := piece.strip())}
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set={tags_code(tag) for tag in tags},
        sub_version=version,
    )
