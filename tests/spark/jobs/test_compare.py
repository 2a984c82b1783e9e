"""Comparing two topics."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.full_cases import full
from tests.spark.cold_tier import ColdTier, directory_url
from tests.tiered.cold_data import Log
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import Side, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copied(topic: str, seed: int, *, changed: bool) -> Log:
    """20 messages dealt over queues by chance; when changed: 3 and 4 are missing, 5 has another body, 6 another tag, 7
    comes twice, and 20 is new."""
    random = Random(seed)
    log = Log(topic=topic, random=random, queue_count=3)
    for number in range(21 if changed else 20):
        if changed and number in (3, 4):
            continue
        body = b"other" if changed and number == 5 else b"body %d" % number
        tag = "B" if changed and number == 6 else "A"
        for _ in range(2 if changed and number == 7 else 1):
            log.append(random.randrange(3), body=body, tag=tag, keys=f"k{number}", unique_key=f"U{number:04}")
        log.now_ms += 1
    return log


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> ColdTier:
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    tier.seal(copied("original", 1, changed=False))
    tier.seal(copied("same", 2, changed=False))
    tier.seal(copied("changed", 3, changed=True))
    return tier


@pytest.mark.parametrize("by", ["unique-key", *full("key")])
def test_missing_new_and_changed_messages_are_distinguished(
    spark_session: SparkSession, topics: ColdTier, by: str
) -> None:
    original, changed = Side(url=topics.url, topic="original"), Side(url=topics.url, topic="changed")
    found = compare(spark_session, original, changed, by=by, with_properties=by == "key")
    name = "U{:04}" if by == "unique-key" else "k{}"
    outcomes = {
        example["id"]: (example["outcome"], example["here_count"], example["there_count"]) for example in found.examples
    }
    assert outcomes == {
        name.format(3): ("only here", 1, 0),
        name.format(4): ("only here", 1, 0),
        name.format(5): ("differs", 1, 1),
        name.format(6): ("differs", 1, 1),
        name.format(7): ("differs", 1, 2),
        name.format(20): ("only there", 0, 1),
    }
    assert (found.same, found.differs, found.only_here, found.only_there) == (15, 3, 2, 1)
    assert (found.here_messages, found.there_messages, found.is_equal) == (20, 20, False)


def test_a_copy_in_other_queues_is_equal_but_for_its_places(spark_session: SparkSession, topics: ColdTier) -> None:
    original, same = Side(url=topics.url, topic="original"), Side(url=topics.url, topic="same")
    found = compare(spark_session, original, same, by="body")
    assert (found.same, found.is_equal, found.examples) == (20, True, ())
    assert not compare(spark_session, original, same, by="offset", examples_max=0).is_equal


def test_the_command_writes_every_difference_and_goes_on_when_it_is_repeated(
    spark_session: SparkSession, topics: ColdTier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from thermocline.cli.main import run

    output = tmp_path / "differences"
    words = ["spark", "compare", "original", "changed", "--from", topics.url, "--to", str(output), "--rows", "1"]
    assert run([*words, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for file in sorted(output.glob("*.json")) for line in file.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == ["U0003", "U0004", "U0005", "U0006", "U0007", "U0020"]
    assert report["examples"] == [line for line in lines if line["id"] == report["examples"][0]["id"]]
    assert run([*words, "--json"]) == 1
    again = json.loads(capsys.readouterr().out)
    assert again["outcome"] == "finished before"
    assert {**again, "outcome": "written", "elapsed_ms": 0} == {**report, "elapsed_ms": 0}
    assert run([*words, "--by", "key"]) == 1
    assert "other arguments" in capsys.readouterr().err


def test_columns_that_cannot_be_compared_are_refused(spark_session: SparkSession, topics: ColdTier) -> None:
    side = Side(url=topics.url, topic="original")
    with pytest.raises(InvalidRequestError, match="'colour' is nothing to compare by"):
        compare(spark_session, side, side, by="colour")
