"""The process stops before and after every input and output of the cold tier, of files and of the object store; the
store's answers are lost, late, doubled and stale. Each time what comes back keeps every promise.

`make test` carries out 266 distinct crash points (operation, input or output, side) and 42 other faults of the store,
`make test-full` 518 and 84, `make soak` 2 100 and 350; see `selection.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.crash.points import replay, trial
from tests.crash.points.runs import RUNS
from tests.crash.points.selection import STOPS, Place, Selected, faults_of, stops_of
from tests.crash.points.tape import Layer, Side
from tests.crash.points.trial import Trial, carry_out, trials_of
from thermocline.tiered.wrappers.wrapping import Verb

SEED = 1
PARTS = 2
"""Tests that share a run's points, so that they run side by side."""
QUICK_STOPS, FULL_STOPS, SOAK_STOPS = 19, 37, 150
QUICK_FAULTS, FULL_FAULTS, SOAK_FAULTS = 2, 6, 25
"""How many of each are carried out by one test."""
QUICK_NEEDED, FULL_NEEDED, SOAK_NEEDED = 260, 500, 2_000


def shares(run: str, part: int, *, stops: int, faults: int) -> list[Selected]:
    """What one test carries out."""
    chosen = stops_of(SEED)[run][: stops * PARTS][part::PARTS]
    assert len(chosen) == stops, f"{run} has too few distinct points"
    return chosen + faults_of(SEED)[run][: faults * PARTS][part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("run", sorted(RUNS))
def test_every_promise_is_kept_wherever_it_stops(run: str, part: int, case_count: Callable[..., int]) -> None:
    wanted = case_count(quick=QUICK_STOPS, full=FULL_STOPS, soak=SOAK_STOPS)
    needed = case_count(quick=QUICK_NEEDED, full=FULL_NEEDED, soak=SOAK_NEEDED)
    cuts, carried_out = Counter[bool](), set[Place]()
    for each in shares(
        run, part, stops=wanted, faults=case_count(quick=QUICK_FAULTS, full=FULL_FAULTS, soak=SOAK_FAULTS)
    ):
        outcome = carry_out(each.trial)
        point = each.trial.point
        assert point is not None
        assert outcome.is_reached, each.trial.line
        assert Place.of(outcome.ios[point.number], point.side) == each.place, each.trial.line
        cuts[outcome.power_was_cut] += 1
        carried_out.add(each.place)
    # No two of these tests share one (below), so together they carry out the needed number.
    assert len({place for place in carried_out if place.side in STOPS}) * PARTS * len(RUNS) >= needed
    # Of some the machine's power was cut, too.
    assert min(cuts.values()) > wanted // 4


@pytest.mark.parametrize(
    ("stops", "faults"), [(QUICK_STOPS, QUICK_FAULTS), (FULL_STOPS, FULL_FAULTS), (SOAK_STOPS, SOAK_FAULTS)]
)
def test_the_crash_points_are_distinct_and_cover_every_operation(stops: int, faults: int) -> None:
    carried_out = [
        each for run in RUNS for part in range(PARTS) for each in shares(run, part, stops=stops, faults=faults)
    ]
    places = [each.place for each in carried_out if each.place.side in STOPS]
    assert len(set(places)) == len(places) == stops * PARTS * len(RUNS)
    there = {(each.place.operation, each.place.side) for run in RUNS for each in stops_of(SEED)[run]}
    assert {(place.operation, place.side) for place in places} == there
    assert {each.place.side for each in carried_out} == STOPS | {Side.LATE, Side.TWICE, Side.STALE}


def test_the_runs_meet_everything() -> None:
    """Kinds of places: some run has each."""
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
        (Layer.OBJECT, Verb.CREATE_IF_ABSENT, "state"),
        (Layer.OBJECT, Verb.LIST, "state"),
        (Layer.OBJECT, Verb.LIST, "pins"),
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

    async def planted(_bucket: object, _now_ms: int) -> None:
        raise AssertionError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(trial, "check_bucket", planted)
        with pytest.raises(AssertionError, match="planted") as failure:
            carry_out(found)
    assert failure.value.__notes__ == [f"replay: {found.line}"]
    _python, _m, _module, *arguments = found.line.split()
    replay.main(*arguments)
    assert "ok ios=" in capsys.readouterr().out
