"""Groups of controllers under faults, by seeds; and with a rule taken away, which the same checks find out.

Covers `controller/consensus/replicated_log.py`, `controller/consensus/journal.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.controller.consensus.simulated_group import SimulatedGroup, ViolationError
from thermocline.controller.consensus import replicated_log
from thermocline.controller.consensus.journal import LOG_SITE, VOTE_SITE
from thermocline.controller.consensus.peer_messages import Message, SnapshotPiece, to_library
from thermocline.remoting.errors import CorruptDataError

FAULTS_S = 60.0
CUTTING_SEED = 1069
SEEDS_MAX = 60
"""Within so many runs a missing rule is found out."""


@pytest.mark.soak
@pytest.mark.parametrize("size", [1, 3, 5])
def test_what_is_acknowledged_stays_and_all_nodes_agree(size: int, case_count: Callable[..., int]) -> None:
    acknowledged = 0
    for seed in range(case_count(quick=6, full=40, soak=2_000)):
        group = SimulatedGroup(seed, size=size)
        try:
            group.run(FAULTS_S)
        except ViolationError as error:
            raise AssertionError(f"seed {seed}, {size} nodes: {error}") from error
        acknowledged += len(group.acknowledged)
    assert acknowledged > 500


@pytest.mark.parametrize("site", [LOG_SITE, VOTE_SITE])
def test_without_a_sync_the_checks_find_a_loss(site: str) -> None:
    assert any(is_violated(seed, ignored_sites=(site,)) for seed in range(SEEDS_MAX))


def test_if_a_piece_of_a_snapshot_commits_the_checks_find_two_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does in PySyncObj by itself."""

    def committing(message: Message) -> dict[str, Any]:
        changed = to_library(message)
        return {**changed, "commit_index": 1 << 40} if isinstance(message, SnapshotPiece) else changed

    monkeypatch.setattr(replicated_log, "to_library", committing)
    assert any(is_violated(seed) for seed in range(SEEDS_MAX))


def test_if_a_message_cuts_off_what_it_does_not_contradict_the_checks_find_two_histories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it does in PySyncObj by itself; one run of some hundreds comes to it."""
    monkeypatch.setattr(replicated_log._Library, "_cuts_without_conflict", lambda log, message: False)
    assert is_violated(CUTTING_SEED)


def is_violated(seed: int, *, ignored_sites: tuple[str, ...] = ()) -> bool:
    group = SimulatedGroup(seed, size=3, ignored_sites=ignored_sites)
    try:
        group.run(FAULTS_S)
    except (ViolationError, CorruptDataError):
        return True
    return False
