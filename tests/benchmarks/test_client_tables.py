"""The benchmarks that print a Markdown table beside the official broker: their arithmetic, and their programs."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE
from benchmarks.client_cpu import FULL_SPEED, Run, ratios, table, verdicts
from benchmarks.consume_end_to_end import Progress
from benchmarks.load_generator import LoadShape, topic_name
from benchmarks.markdown_table import markdown_table, spread

PROGRAMS = ("client_cpu", "topic_counts", "batch_of_ten", "replay_beside_sends", "consume_end_to_end", "tls_sends")


def run(cpu_s: float, messages: int = 1_000) -> Run:
    return Run(messages=messages, consumed=messages, seconds=1.0, broker_cpu_s=cpu_s)


def test_half_the_cpu_time_is_a_ratio_of_a_half() -> None:
    pairs = [{THERMOCLINE: run(0.01), OFFICIAL: run(0.02)}]
    assert ratios(pairs, THERMOCLINE, OFFICIAL) == [0.5]
    assert pairs[0][OFFICIAL].us_per_message == 20.0


@pytest.mark.parametrize(("cpu_s", "is_met"), [(0.0079, True), (0.0081, False)])
def test_the_bar_is_eight_tenths(cpu_s: float, is_met: bool) -> None:
    (verdict,) = verdicts({FULL_SPEED: [{THERMOCLINE: run(cpu_s), OFFICIAL: run(0.01)}]})
    assert verdict.is_met is is_met


def test_without_the_official_broker_there_is_nothing_to_judge() -> None:
    runs = {1_000: [{THERMOCLINE: run(0.01)}]}
    assert verdicts(runs) == []
    assert table(runs, [THERMOCLINE]).splitlines()[-1] == "| 1 000/s | 10.0 | 1000 |"


def test_a_table_is_markdown() -> None:
    made = markdown_table(["a", "b"], [["1", spread([3.0, 1.0, 2.0], ".0f")]])
    assert made == "| a | b |\n| --- | --- |\n| 1 | 2 [1-3] |"


def test_the_rate_is_that_of_the_middle() -> None:
    """What comes before a fifth, and after nineteen twentieths, does not count."""
    progress = Progress(1_000)
    for count, now_s in ((100, 10.0), (200, 20.0), (600, 22.0), (949, 23.0)):
        progress.consumed(count, now_s)
        assert progress.rate_per_s is None
    progress.consumed(1_000, 24.0)
    progress.consumed(1_000, 99.0)
    assert progress.rate_per_s == 200.0


def test_many_topics_have_names_of_one_length() -> None:
    assert topic_name("Counted", 7) == "Counted00007"
    assert "--topics=100" in LoadShape(topics=100).arguments()
    assert not any("topics" in argument for argument in LoadShape().arguments())


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_explains_itself(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        importlib.import_module(f"benchmarks.{program}").main(["--help"])
    assert exit_.value.code == 0
    assert "--quick" in capsys.readouterr().out
