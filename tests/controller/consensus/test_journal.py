"""The files of one controller: after a power cut, after damage, of another node.

Covers `controller/consensus/journal.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.controller.consensus.journal import Entry, Journal, SnapshotFile
from thermocline.remoting.errors import CorruptDataError, SettingError, UnavailableError
from thermocline.store.files import Disk, RealDisk

FOLDER = "/data/controller-n0"


def open_journal(
    disk: Disk, folder: str = FOLDER, *, group: str = "g", node: str = "n0", nodes: Collection[str] = ("n0", "n1", "n2")
) -> Journal:
    return Journal(disk, folder, group=group, node=node, nodes=nodes, start_floor=0)


def entries_of(journal: Journal) -> list[Entry]:
    return list(journal[:])


def test_entries_and_vote_are_there_again_after_a_power_cut() -> None:
    disk = SimulatedDisk()
    journal = open_journal(disk)
    journal.add(b"one", 1, 1)
    journal.add(b"two", 2, 1)
    journal.flush()
    journal.setCurrentTerm(7, "n2")
    again = open_journal(disk.after_power_cut(Random(1), kept_share=0.0))
    assert entries_of(again) == [(b"one", 1, 1), (b"two", 2, 1)]
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, "n2")
    assert again.starts == journal.starts + 1


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.binary(max_size=40)),
            st.tuples(st.just("cut"), st.integers(1, 4)),
            st.tuples(st.just("drop"), st.integers(1, 3)),
            st.tuples(st.just("flush"), st.none()),
        ),
        max_size=30,
    ),
    cut_at_step=st.integers(1, 80),
    seed=st.integers(0, 2**32),
)
def test_after_a_cut_the_log_is_as_flushed_or_as_the_flush_under_way_makes_it(
    steps: list[tuple[str, object]], cut_at_step: int, seed: int
) -> None:
    disk = SimulatedDisk()
    journal = open_journal(disk)
    disk.cut_at_step = disk.step_count + cut_at_step
    model: list[Entry] = []
    flushed: list[Entry] = []
    wanted: list[Entry] = []
    index = 0
    with contextlib.suppress(PowerCut):
        for kind, value in steps:
            if kind == "add":
                assert isinstance(value, bytes)
                index = model[-1][1] + 1 if model else index + 1
                model.append((value, index, 1))
                journal.add(value, index, 1)
            elif kind == "cut" and model:
                assert isinstance(value, int)
                start = max(0, len(model) - value)
                index = model[start][1] - 1
                del model[start:]
                journal.deleteEntriesFrom(start)
            elif kind == "drop" and len(model) > 3:
                assert isinstance(value, int)
                del model[:value]
                journal.deleteEntriesTo(value)
            elif kind == "flush":
                wanted = list(model)
                journal.flush()
                flushed = list(model)
    found = entries_of(open_journal(disk.after_power_cut(Random(seed))))
    assert found in (flushed, wanted)


def test_entries_that_are_cut_off_and_put_back_are_not_written_again() -> None:
    disk = SimulatedDisk()
    journal = open_journal(disk)
    for index in range(1, 6):
        journal.add(b"x", index, 1)
    journal.flush()
    steps = disk.step_count
    journal.deleteEntriesFrom(1)
    for index in range(2, 6):
        journal.add(b"x", index, 1)
    journal.flush()
    assert disk.step_count == steps


def test_entries_that_a_snapshot_covers_are_dropped_at_the_start_and_those_behind_it_stay() -> None:
    disk = SimulatedDisk()
    journal = open_journal(disk)
    for index in range(1, 8):
        journal.add(b"%d" % index, index, 1)
    journal.flush()
    journal.save_snapshot(SnapshotFile(before_last=(b"3", 3, 1), last=(b"4", 4, 1), tables=b"tables"))
    again = open_journal(disk.after_power_cut(Random(2), kept_share=0.0))
    assert [index for _, index, _ in entries_of(again)] == [3, 4, 5, 6, 7]
    assert again.snapshot is not None
    assert again.snapshot.tables == b"tables"


def test_damage_before_a_whole_batch_is_refused() -> None:
    disk = SimulatedDisk()
    journal = open_journal(disk)
    for index in (1, 2):
        journal.add(b"command", index, 1)
        journal.flush()
    journal._destroy()
    disk.corrupt(f"{FOLDER}/log", 10, b"\xff")
    with pytest.raises(CorruptDataError, match="damaged"):
        open_journal(disk)


def test_a_damaged_snapshot_is_refused() -> None:
    disk = SimulatedDisk()
    journal = open_journal(disk)
    journal.save_snapshot(SnapshotFile(before_last=(b"1", 1, 1), last=(b"2", 2, 1), tables=b"tables"))
    journal._destroy()
    disk.corrupt(f"{FOLDER}/snapshot", 9, b"\xff")
    with pytest.raises(CorruptDataError, match="checksum"):
        open_journal(disk)


def test_the_folder_of_another_node_or_group_is_refused() -> None:
    disk = SimulatedDisk()
    open_journal(disk)._destroy()
    for group, node in (("g", "n1"), ("other", "n0")):
        with pytest.raises(SettingError, match="belongs to node n0 of group g"):
            open_journal(disk, group=group, node=node)


def test_a_group_keeps_the_nodes_of_its_first_start() -> None:
    disk = SimulatedDisk()
    open_journal(disk)._destroy()
    with pytest.raises(SettingError, match="they are n0 n1 n2"):
        open_journal(disk, nodes=["n0"])
    open_journal(disk, nodes=["n2", "n1", "n0"])._destroy()


def test_a_log_without_its_vote_is_refused() -> None:
    disk = SimulatedDisk()
    open_journal(disk)._destroy()
    disk.remove(f"{FOLDER}/vote")
    with pytest.raises(CorruptDataError, match="no vote"):
        open_journal(disk)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "controller-n0")
    disk = RealDisk()
    journal = open_journal(disk, folder)
    with pytest.raises(UnavailableError):
        open_journal(disk, folder)
    journal._destroy()
    open_journal(disk, folder)._destroy()


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "controller-n0"
    journal = open_journal(RealDisk(), str(folder))
    journal.add(b"x", 1, 1)
    journal.flush()
    journal.clear()
    journal.flush()
    journal._destroy()
    assert {path.name: path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())} == dict.fromkeys(
        ("controller-n0", "log", "vote", "lock"), 0
    )
