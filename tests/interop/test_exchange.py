"""A store directory changes brokers, between the official one and ours: the second broker has everything the first one
wrote, and continues with what was under way. `tests/interop/exchange/` has what is written and checked, by subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import OFFICIAL, THERMOCLINE
from tests.interop.exchange.story import KILLED, STOPPED, HandOver, Story, hand_over_of
from tests.interop.java_agent import JavaAgent
from tooling.official_rocketmq import OfficialSoftware

pytestmark = pytest.mark.java

KILLED_OURS = Story(first=THERMOCLINE, ending=KILLED, second=OFFICIAL)
STORIES = (
    KILLED_OURS,
    Story(first=THERMOCLINE, ending=STOPPED, second=OFFICIAL),
    Story(first=OFFICIAL, ending=STOPPED, second=THERMOCLINE),
)
AMONG_OURS = tuple(Story(first=THERMOCLINE, ending=ending, second=THERMOCLINE) for ending in (STOPPED, KILLED))
AMONG_OFFICIAL = tuple(Story(first=OFFICIAL, ending=ending, second=OFFICIAL) for ending in (STOPPED, KILLED))
"""Prove the tests themselves."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stories = STORIES + AMONG_OURS
    if metafunc.config.getoption("--official-peer") or metafunc.config.getoption("--soak"):
        stories += AMONG_OFFICIAL
    parameters = []
    for story in stories:
        marks = [pytest.mark.xdist_group(f"exchange-{story}")]
        # A broker that is killed leaves the same, unfinished: the harder story is the one of `make test`. What an
        # official broker left is opened there from the fixtures; the official one computes without end from its first
        # decided transaction on.
        if story not in (KILLED_OURS, *AMONG_OFFICIAL):
            marks.append(pytest.mark.full)
        parameters.append(pytest.param(story, marks=marks, id=str(story)))
    metafunc.parametrize("hand_over", parameters, indirect=True, scope="module")


@pytest.fixture(scope="module")
def hand_over(
    request: pytest.FixtureRequest,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[HandOver]:
    """One story, played until the second broker serves."""
    story: Story = request.param
    with hand_over_of(story, official_software, java_agent_process, module_folder / str(story)) as found:
        yield found


def test_every_message_is_there(hand_over: HandOver) -> None:
    hand_over.messages.check(hand_over.cluster)


def test_open_transactions_are_decided_once(hand_over: HandOver) -> None:
    hand_over.transactions.check(hand_over.cluster)


def test_popped_messages_come_back_in_time(hand_over: HandOver) -> None:
    hand_over.pops.check(hand_over.cluster)


def test_timed_messages_come_once_and_not_early(hand_over: HandOver) -> None:
    hand_over.timers.check(hand_over.cluster)
