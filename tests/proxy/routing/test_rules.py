"""Routing rules: which one counts, and what is no rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thermocline.proxy.messaging import Caller
from thermocline.proxy.routing import DEFAULT_CLUSTER, Rules, parse_rules
from thermocline.proxy.routing.rules import ALSO_READ_MAX, DECISIONS_MAX, REMEMBERED_CHARACTERS_MAX, RULES_MAX
from thermocline.remoting.errors import SettingError

CLUSTERS = (DEFAULT_CLUSTER, "east", "west")


def rules_of(*rules: dict[str, Any], has_users: bool = True) -> Rules:
    return parse_rules(json.dumps({"rules": rules}).encode(), clusters=CLUSTERS, has_users=has_users)


def chosen(rules: Rules, topic: str = "T", group: str = "", user: str = "", address: str = "") -> str:
    return rules.decide(topic, group, Caller(user=user, address=address)).first


def test_without_a_rule_that_fits_it_is_the_default_cluster() -> None:
    assert chosen(Rules()) == DEFAULT_CLUSTER
    assert chosen(rules_of({"topic": "other", "cluster": "east"})) == DEFAULT_CLUSTER


def test_the_first_rule_that_fits_counts() -> None:
    rules = rules_of(
        {"topic": "orders-old", "cluster": "default"},
        {"topic": "orders*", "cluster": "east"},
        {"topic": "*", "cluster": "west"},
    )
    assert [chosen(rules, topic) for topic in ("orders-old", "orders-new", "orders", "order")] == [
        *("default", "east", "east", "west"),
    ]


@pytest.mark.parametrize("name", ["topic", "group", "user"])
def test_a_name_is_whole_or_a_beginning(name: str) -> None:
    whole, beginning = rules_of({name: "pay", "cluster": "east"}), rules_of({name: "pay*", "cluster": "east"})
    for text, is_whole in (("pay", True), ("pays", False)):
        assert (chosen(whole, **{name: text}) == "east") is is_whole
        assert chosen(beginning, **{name: text}) == "east"
    for text in ("pa", "Pay", "repay"):
        assert chosen(beginning, **{name: text}) == DEFAULT_CLUSTER


def test_a_rule_of_a_group_or_user_needs_one() -> None:
    rules = rules_of({"group": "*", "cluster": "east"}, {"user": "*", "cluster": "west"})
    assert chosen(rules) == DEFAULT_CLUSTER
    assert chosen(rules, group="G") == "east"
    assert chosen(rules, user="alice") == "west"


def test_all_conditions_of_a_rule_have_to_hold() -> None:
    rules = rules_of({"topic": "T", "group": "G", "user": "alice", "address": "10.0.0.0/8", "cluster": "east"})
    asked = {"topic": "T", "group": "G", "user": "alice", "address": "10.1.2.3"}
    assert chosen(rules, **asked) == "east"
    for name in asked:
        assert chosen(rules, **{**asked, name: "192.168.0.1" if name == "address" else "other"}) == DEFAULT_CLUSTER


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
        ("10.1.0.7", "10.1.0.7", "10.1.0.8"),
        ("10.1.0.0/16", "::ffff:10.1.0.1", "::ffff:10.2.0.1"),
        ("fd00::/8", "fd12::1", "10.1.0.1"),
        ("fe80::/10", "fe80::1%eth0", "fec0::1"),
        ("0.0.0.0/0", "1.2.3.4", ""),
    ],
)
def test_an_address_is_one_or_a_network(network: str, inside: str, outside: str) -> None:
    rules = rules_of({"address": network, "cluster": "east"})
    assert chosen(rules, address=inside) == "east"
    assert chosen(rules, address=outside) == DEFAULT_CLUSTER


def test_consumers_read_other_clusters_too_each_once() -> None:
    rules = rules_of({"topic": "T", "cluster": "east", "alsoRead": ["default", "east", "west"]})
    assert rules.decide("T", "", Caller()).clusters == ("east", "default", "west")


def test_where_rules_of_groups_may_lead_is_told_without_a_group() -> None:
    rules = rules_of(
        {"topic": "other", "group": "G", "cluster": "west"},
        {"group": "G", "cluster": "east"},
        {"group": "H", "cluster": "east"},
        {"topic": "T", "cluster": "west"},
    )
    assert rules.has_groups
    assert [decision.first for decision in rules.of_any_group("T", Caller())] == ["east"]
    assert not rules_of({"topic": "T", "cluster": "west"}).has_groups


def test_decisions_about_long_names_are_not_remembered() -> None:
    """10000 of them, each as long as a frame, would be all the memory there is."""
    rules = rules_of({"user": "x*", "cluster": "east"})
    assert chosen(rules, user="x" * REMEMBERED_CHARACTERS_MAX) == "east"
    assert chosen(rules, topic="x" * 100_000) == DEFAULT_CLUSTER
    assert not rules._decisions


def test_decisions_are_remembered_within_a_bound() -> None:
    rules = rules_of({"topic": "T9*", "cluster": "east"})
    for number in range(DECISIONS_MAX + 10):
        assert (chosen(rules, f"T{number}") == "east") is str(number).startswith("9")
    assert len(rules._decisions) <= DECISIONS_MAX


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"cluster": "east"}, "routing rule 1: it has no topic, group, user or address"),
        ({"topic": "a*b", "cluster": "east"}, "routing rule 1: a * stands at the end of a name alone"),
        ({"topic": "T" * 256, "cluster": "east"}, "routing rule 1: a name has at most 255 characters"),
        ({"address": "10.0.0.1/8", "cluster": "east"}, "routing rule 1: 10.0.0.1/8 is no address and no network"),
        ({"address": "localhost", "cluster": "east"}, "routing rule 1: localhost is no address and no network"),
        ({"topic": "T", "cluster": "north"}, "routing rule 1: there is no cluster north in routingClusters"),
        (
            {"topic": "T", "cluster": "east", "alsoRead": ["south"]},
            "routing rule 1: there is no cluster south in routingClusters",
        ),
        (
            {"topic": "T", "cluster": "east", "alsoRead": ["west"] * (ALSO_READ_MAX + 1)},
            f"routing rule 1: alsoRead names more than {ALSO_READ_MAX} clusters",
        ),
        ({"topic": "T"}, "Object missing required field `cluster`"),
        ({"topic": "T", "cluster": "east", "queue": 1}, "Object contains unknown field `queue`"),
        ({"topic": 7, "cluster": "east"}, "Expected `str`, got `int`"),
    ],
)
def test_what_is_no_rule_is_refused_with_a_sentence(rule: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as raised:
        rules_of(rule)
    assert sentence in raised.value.message


def test_what_is_no_list_of_rules_is_refused() -> None:
    for data in (b"", b"[]", b'{"rules": {}}', b"{", b'{"rules": [], "more": 1}'):
        with pytest.raises(SettingError, match="the file of routing rules cannot be read"):
            parse_rules(data, clusters=CLUSTERS, has_users=True)
    with pytest.raises(SettingError, match=f"more than {RULES_MAX} routing rules"):
        rules_of(*[{"topic": "T", "cluster": "east"}] * (RULES_MAX + 1))
    assert len(rules_of(*[{"topic": "T", "cluster": "east"}] * RULES_MAX).rules) == RULES_MAX


def test_a_user_needs_access_control() -> None:
    with pytest.raises(SettingError, match="routing rule 1: a user needs authenticationEnabled"):
        rules_of({"user": "alice", "cluster": "east"}, has_users=False)
