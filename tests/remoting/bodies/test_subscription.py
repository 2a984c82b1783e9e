"""Subscription expressions."""

import pytest

from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.errors import SubscriptionParseError


@pytest.mark.parametrize("expression", ["*", "", None])
def test_everything(expression: str | None) -> None:
    subscription = parse_subscription("T", expression)
    assert (subscription.sub_string, subscription.tags_set, subscription.code_set) == ("*", set(), set())


@pytest.mark.parametrize("expression", ["TagA || T0", "TagA||T0", "|| TagA ||T0||", "TagA||T0||TagA"])
def test_tags(expression: str) -> None:
    subscription = parse_subscription("T", expression, version=7)
    assert subscription.tags_set == {"TagA", "T0"}
    assert subscription.code_set == {2_598_919, 2_652}
    assert (subscription.topic, subscription.sub_string, subscription.sub_version) == ("T", expression, 7)
    assert subscription.expression_type == "TAG"


def test_single_bar_belongs_to_a_tag() -> None:
    assert parse_subscription("T", "a|b").tags_set == {"a|b"}


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_nothing_but_bars(expression: str) -> None:
    with pytest.raises(SubscriptionParseError):
        parse_subscription("T", expression)


def test_other_expressions_are_kept() -> None:
    subscription = parse_subscription("T", "a > 5", expression_type="SQL92")
    assert (subscription.sub_string, subscription.expression_type) == ("a > 5", "SQL92")
    assert not subscription.tags_set
    with pytest.raises(SubscriptionParseError):
        parse_subscription("T", "", expression_type="SQL92")
