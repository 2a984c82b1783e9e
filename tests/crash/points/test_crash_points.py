"""The process stops before and after every input and output of the cold tier, of files and of the object store; the
store's answers are lost, late, doubled and stale. Each time what comes back keeps every promise.

`make test` tries 500 points, `make soak` six times as many, first some of every kind; there are more than 13 000 that
differ in number or side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.crash.points import replay, trial
from tests.crash.points.runs import RUNS
from tests.crash.points.tape import Layer, Side
from tests.crash.points.trial import Trial, carry_out, trials_of
from thermocline.tiered.wrappers.wrapping import Verb

SEED = 1
PARTS = 2
"""Tests that share a run's points, so that they run side by side."""
QUICK_COUNT, SOAK_COUNT = 504, 3_000
NEEDED = 2_000


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("run", sorted(RUNS))
def test_every_promise_is_kept_wherever_it_stops(run: str, part: int, case_count: Callable[..., int]) -> None:
    trials = trials_of(run, SEED)
    count = case_count(quick=QUICK_COUNT // len(RUNS), soak=SOAK_COUNT // len(RUNS))
    cuts = Counter[bool]()
    for each in trials[:count][part::PARTS]:
        outcome = carry_out(each)
        assert outcome.is_reached, each.line
        cuts[outcome.power_was_cut] += 1
    # Of some the machine's power was cut, too.
    assert min(cuts.values()) > count // PARTS // 4


def test_there_are_enough_points_and_they_meet_everything() -> None:
    """What is enumerated: kinds of places, and of what happens there."""
    points = {run: trials_of(run, SEED) for run in RUNS}
    sides = (Side.BEFORE, Side.AFTER, Side.LOST)
    stops = [each for trials in points.values() for each in trials if each.point and each.point.side in sides]
    assert len({(each.run, each.point) for each in stops}) == len(stops) >= NEEDED
    met = Counter[tuple[Layer, str, str]]()
    for run in RUNS:
        for io in carry_out(Trial(run, SEED)).ios:
            # Of the bucket's keys the first two are the cluster and the broker.
            met[io.layer, io.verb, f"{io.target}///".split("/")[2 if io.layer is Layer.OBJECT else 1]] += 1
    for wanted in (
        (Layer.OBJECT, Verb.PUT, "topics"),
        (Layer.OBJECT, Verb.PUT, "packs"),
        (Layer.OBJECT, Verb.PUT, "indexes"),
        (Layer.OBJECT, Verb.GET_RANGE, "indexes"),
        (Layer.OBJECT, Verb.DELETE_MANY, "indexes"),
        (Layer.OBJECT, Verb.LIST, "indexes"),
        (Layer.OBJECT, Verb.GET_RANGE, "packs"),
        (Layer.OBJECT, Verb.DELETE_MANY, "packs"),
        (Layer.OBJECT, Verb.LIST, "packs"),
        (Layer.OBJECT, Verb.PUT, "state"),
        (Layer.OBJECT, Verb.PUT, "checkpoints"),
        (Layer.OBJECT, Verb.PUT, "head-hint"),
        (Layer.OBJECT, Verb.CREATE_IF_ABSENT, "ledger"),
        (Layer.OBJECT, Verb.CREATE_IF_ABSENT, "checkpoints"),
        (Layer.OBJECT, Verb.DELETE, "ledger"),
        (Layer.OBJECT, Verb.DELETE, "checkpoints"),
        (Layer.OBJECT, Verb.DELETE_MANY, "topics"),
        (Layer.OBJECT, Verb.LIST, "topics"),
        (Layer.FILE, "write", "commitlog"),
        (Layer.FILE, "sync", "commitlog"),
        (Layer.FILE, "remove", "commitlog"),
        (Layer.FILE, "write", "consumequeue"),
        (Layer.FILE, "rename", "config"),
        (Layer.FILE, "rename", "thermocline"),
    ):
        assert met[wanted] > 0, f"no run has {wanted}: {sorted(met)}"
    operations = {io.operation for run in RUNS for io in carry_out(Trial(run, SEED)).ios}
    assert operations >= {
        "append",
        "collect",
        "delete local files",
        "delete topic",
        "index",
        "index beside a merge",
        "index beside a sweep",
        "merge",
        "merge beside a sweep",
        "merge beside an expiry",
        "purge",
        "purge beside a deletion",
        "recover",
        "recover from the bucket",
        "seal",
        "seal beside a sweep",
        "seal by age",
        "seal packs",
        "seal packs beside a sweep",
        "set ttl",
        "start",
        "start recovered",
    }


@pytest.mark.parametrize("run", sorted(RUNS))
def test_a_seed_is_a_run(run: str) -> None:
    """The same inputs and outputs in the same order, and others with another seed."""
    digests = [carry_out(Trial(run, seed)).digest for seed in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


def test_a_failure_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = next(trial for trial in trials_of("tiering", SEED) if trial.point and trial.point.side is Side.AFTER)

    async def planted(_bucket: object) -> None:
        raise AssertionError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(trial, "check_bucket", planted)
        with pytest.raises(AssertionError, match="planted") as failure:
            carry_out(found)
    assert failure.value.__notes__ == [f"replay: {found.line}"]
    _python, _m, _module, *arguments = found.line.split()
    replay.main(*arguments)
    assert "ok ios=" in capsys.readouterr().out
