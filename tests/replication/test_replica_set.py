"""No acknowledged message is lost and no log forks, whichever broker of the SyncStateSet is elected.

Covers `replication/auto_switch_master.py`, `replication/auto_switch_slave.py`, `replication/epoch_file.py`,
`replication/sync_state_set.py`, `store/truncation.py`. The set and its faults: replica_set.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.replication.replica_set import ReplicaSet
from tests.store.power_cut import seed_shown
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.auto_switch_slave import AutoSwitchSlaveSession
from thermocline.replication.epoch_file import EpochFile
from thermocline.replication.epochs import EpochEntry, Epochs
from thermocline.replication.sync_state_set import SyncStateSet
from thermocline.store.log.message_draft import PutStatus

STEPS = 400


def test_nothing_acknowledged_is_lost_whoever_is_elected(case_count: Callable[..., int]) -> None:
    count = case_count(quick=60, full=600, soak=10_000)
    figures = run_seeds(count)
    assert figures["acknowledged"] > 5 * count
    assert figures["cuts"] > count // 10
    assert figures["elections"] > count


def test_a_learner_follows_and_is_never_in_the_set(case_count: Callable[..., int]) -> None:
    run_seeds(case_count(quick=10, full=100, soak=1_000), learner=True)


def _as_it_was_asked_for(self: SyncStateSet) -> frozenset[int]:
    return self.members


def _any_slave_joins(self: SyncStateSet, slave: Any, confirm_offset: int) -> bool:
    return slave.offset is not None


def _nothing_to_cut(self: AutoSwitchSlaveSession) -> bool:
    return False


_begin_as_master = EpochFile.begin_as_master


def _go_on_in_the_same_epoch(self: EpochFile, epoch: int, end_offset: PhysicalOffset) -> None:
    if self.epochs.last is None or self.epochs.last.epoch != epoch:
        _begin_as_master(self, epoch, end_offset)


def _begin_the_epoch_anew(self: EpochFile, epoch: int, end_offset: PhysicalOffset) -> None:
    """As RocketMQ's broker does."""
    if self.epochs.last is not None and self.epochs.last.epoch == epoch:
        self.epochs.drop_from_epoch(epoch)
    _begin_as_master(self, epoch, end_offset)


def _clear_at_a_refusal(self: SyncStateSet, members: frozenset[int], set_epoch: int) -> None:
    """Whatever the set's epoch is by now."""
    if members in self._attempts:
        self._attempts.remove(members)
    self._release()


_append = Epochs.append


def _keep_the_older(self: Epochs, entry: EpochEntry) -> None:
    """As RocketMQ's broker does."""
    if self.last is None or self.last.start_offset < entry.start_offset:
        _append(self, entry)


@pytest.mark.parametrize(
    ("owner", "rule", "instead"),
    [
        (SyncStateSet, "_possible_members", _as_it_was_asked_for),
        (SyncStateSet, "_may_join", _any_slave_joins),
        (AutoSwitchSlaveSession, "must_cut", property(_nothing_to_cut)),
        (EpochFile, "begin_as_master", _go_on_in_the_same_epoch),
        (EpochFile, "begin_as_master", _begin_the_epoch_anew),
        (SyncStateSet, "refused", _clear_at_a_refusal),
        (Epochs, "append", _keep_the_older),
    ],
    ids=["requested set", "joins", "cut", "same epoch", "epoch anew", "refused", "equal starts"],
)
def test_a_rule_that_is_missing_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, rule: str, instead: Any
) -> None:
    """Without it the simulation fails, so that it proves something of the rule."""
    monkeypatch.setattr(owner, rule, instead)
    with pytest.raises((AssertionError, MQError)):
        run_seeds(2_000)


def run_seeds(count: int, *, learner: bool = False) -> dict[str, int]:
    """Run so many sets; what has happened in them."""
    figures = {"acknowledged": 0, "cuts": 0, "elections": 0}
    for seed in range(count):
        with seed_shown(seed):
            replicas = ReplicaSet(seed, learner=learner)
            for _ in range(STEPS):
                replicas.step()
            replicas.settle()
            replicas.check_same()
            figures["acknowledged"] += replicas.statuses.count(PutStatus.PUT_OK)
            figures["cuts"] += replicas.cuts
            figures["elections"] += replicas.elections
    return figures
