"""The text of GET /metrics, which topics have a label in it, and that the alert rules speak of what is there.

Covers `broker/metrics/families.py`, `broker/metrics/labelled_topics.py`, `broker/metrics/tier_figures.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import yaml

from thermocline.broker.metrics.families import FAMILIES
from thermocline.broker.metrics.labelled_topics import OTHER, LabelledTopics
from thermocline.broker.metrics.tier_figures import (
    PurposeFigures,
    TierFigures,
    TopicFigures,
    TopicRequestFigures,
    show_tier,
    sum_of_others,
)
from thermocline.cli.main import command_line
from thermocline.controller.figures import FAMILIES as CONTROLLER_FAMILIES
from thermocline.remoting.health import Exposition, MetricType

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "docs" / "prometheus-alerts.yaml"
BY_LABELS = re.compile(r"[<>=!]=?\s*on \(")
"""A comparison of two vectors by some labels."""
FIGURES = TierFigures(
    topics=[TopicFigures(topic="orders", waiting_bytes=10, waiting_ms=2_500, stored_bytes=7)],
    purposes=[
        PurposeFigures(purpose="ledger", requests={"put": 3, "get": 4}, errors=1, sent_bytes=30, received_bytes=40)
    ],
    removed_bytes=5,
    ledger_version=9,
    committed_ms=1_700_000_000_500,
    outage_ms=90_000,
    is_widened=True,
    budget_left=-3,
    yielded_requests=12,
    topic_requests=[TopicRequestFigures(topic="orders", requests={"put": 2.5}, errors=0.25)],
    scrub_ms=1_700_000_000_000,
    scrub_broken=2,
    cache_bytes=11,
    cache_hits=12,
    cache_misses=13,
    cache_bytes_max=14,
)


def test_families_are_shown_in_their_order_with_help_and_type() -> None:
    page = Exposition(FAMILIES)
    page.add("thermocline_put_bytes_total", 7, {"topic": 'a"b\\c\nd'})
    page.add("thermocline_broker_writable", True)
    page.add("thermocline_put_bytes_total", 2**60, {"topic": "orders"})
    page.add("thermocline_disk_used_ratio", 0.25)
    assert page.text().decode() == (
        "# HELP thermocline_broker_writable 1 while sends are taken, 0 while they are refused.\n"
        "# TYPE thermocline_broker_writable gauge\n"
        "thermocline_broker_writable 1\n"
        "# HELP thermocline_disk_used_ratio How full the log's file system is, 0 to 1.\n"
        "# TYPE thermocline_disk_used_ratio gauge\n"
        "thermocline_disk_used_ratio 0.25\n"
        "# HELP thermocline_put_bytes_total Record bytes stored, by topic.\n"
        "# TYPE thermocline_put_bytes_total counter\n"
        'thermocline_put_bytes_total{topic="a\\"b\\\\c\\nd"} 7\n'
        'thermocline_put_bytes_total{topic="orders"} 1152921504606846976\n'
    )


def test_names_say_their_type() -> None:
    for name, (metric_type, description) in FAMILIES.items():
        assert re.fullmatch(r"thermocline_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (metric_type is MetricType.COUNTER), name
        assert description.endswith(".")
        assert "\n" not in description


def test_a_topic_keeps_its_label_as_long_as_it_exists() -> None:
    topics = LabelledTopics(topics_max=2)
    traffic = {"a": 1, "b": 9, "c": 5}
    topics.refresh(traffic, exists=lambda topic: topic in traffic, traffic=lambda topic: traffic[topic])
    assert topics.names == ["b", "c"]
    traffic["a"] = 1_000
    topics.refresh(traffic, exists=lambda topic: topic in traffic, traffic=lambda topic: traffic[topic])
    assert [topics.label_of(topic) for topic in "abc"] == [OTHER, "b", "c"]
    del traffic["b"]
    topics.refresh(traffic, exists=lambda topic: topic in traffic, traffic=lambda topic: traffic[topic])
    assert [topics.label_of(topic) for topic in "abc"] == ["a", OTHER, "c"]
    none = LabelledTopics(topics_max=0)
    none.refresh(traffic, exists=lambda topic: topic in traffic, traffic=lambda topic: traffic[topic])
    assert none.names == []


def test_metrics_of_the_tier_process_are_shown() -> None:
    page = Exposition(FAMILIES)
    show_tier(page, FIGURES)
    lines = page.text().decode().splitlines()
    assert 'thermocline_tier_waiting_seconds{topic="orders"} 2.5' in lines
    assert 'thermocline_store_requests_total{purpose="ledger",kind="put"} 3' in lines
    assert 'thermocline_store_errors_total{purpose="ledger"} 1' in lines
    assert "thermocline_tier_scrub_broken 2" in lines
    assert "thermocline_cache_limit_bytes 14" in lines
    assert "thermocline_tier_outage_seconds 90" in lines
    assert 'thermocline_topic_store_requests_total{topic="orders",kind="put"} 2.5' in lines
    assert 'thermocline_topic_store_errors_total{topic="orders"} 0.25' in lines
    assert "thermocline_tier_request_budget_left -3" in lines
    assert "thermocline_tier_request_budget_yielded_total 12" in lines
    assert "thermocline_tier_committed_timestamp_seconds 1700000000.5" in lines
    others = sum_of_others([*FIGURES.topics, *FIGURES.topics])
    assert (others.topic, others.waiting_bytes, others.waiting_ms, others.stored_bytes) == (OTHER, 20, 2_500, 14)


def test_alert_rules_name_only_metrics_that_there_are() -> None:
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    families = {**FAMILIES, **CONTROLLER_FAMILIES}
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        named = set(re.findall(r"thermocline_\w+", rule["expr"]))
        assert named or "role" in rule["expr"], rule["alert"]
        assert named <= families.keys(), rule["alert"]
        for name in named:
            counted = re.findall(rf"(?:increase|rate)\({name}\[\d+m\]\)", rule["expr"])
            is_counter = families[name][0] is MetricType.COUNTER
            assert len(counted) == (rule["expr"].count(name) if is_counter else 0), (rule["alert"], name)
        assert {"summary"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_alert_rules_name_only_commands_that_there_are() -> None:
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    texts = [text for group in document["groups"] for rule in group["rules"] for text in rule["annotations"].values()]
    named = [words for text in texts for words in re.findall(r"\bthermocline ([a-z]+(?:[ -][a-z]+)*)", text)]
    assert len(named) >= 5
    for words in named:
        command: click.Command = command_line
        for word in words.split():
            if isinstance(command, click.Group):
                assert word in command.commands, words
                command = command.commands[word]
        assert not isinstance(command, click.Group), words


def test_alert_rules_join_series_with_the_same_labels() -> None:
    """`a > on (x) b` has no label but x: "and" without `on (x)` finds no partner for it, and the rule never fires."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    joined = 0
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        first, *others = re.split(r"\b(?:and|or|unless)\b", rule["expr"])
        assert not (others and BY_LABELS.search(first)), rule["alert"]
        for operand in others:
            if BY_LABELS.search(operand):
                joined += 1
                assert operand.lstrip().startswith("on ("), rule["alert"]
    assert joined


def test_critical_states_of_the_store_have_their_alerts() -> None:
    """Errors, and a cache that is too small, among them; each of its own metrics."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    rules = {rule["alert"]: rule["expr"] for group in document["groups"] for rule in group["rules"]}
    assert "thermocline_store_errors_total" in rules["ThermoclineStoreErrors"]
    assert "thermocline_cache_limit_bytes" in rules["ThermoclineCacheTooSmall"]
    assert rules["ThermoclineScrubFoundBroken"] == "thermocline_tier_scrub_broken > 0"
