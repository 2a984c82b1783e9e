from __future__ import annotations

import os
from pathlib import Path

import pytest

import thermocline
from thermocline.broker.process.build_id import current_build_id


def build_id_of(package: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(thermocline, "__file__", str(package / "__init__.py"))
    return current_build_id.__wrapped__()


def test_every_source_file_counts_behind_links_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, folder = tmp_path / "src" / "thermocline", tmp_path / "store"
    (folder / "log").mkdir(parents=True)
    package.mkdir(parents=True)
    source, other = folder / "log" / "commit_log.py", folder / "notes.txt"
    source.write_text("SIZE = 1\n")
    (package / "store").symlink_to(folder)
    before = build_id_of(package, monkeypatch)
    other.write_text("no code")
    assert build_id_of(package, monkeypatch) == before
    os.utime(source, ns=(1, 1))
    touched = build_id_of(package, monkeypatch)
    source.rename(folder / "log" / "other_log.py")
    assert len({before, touched, build_id_of(package, monkeypatch)}) == 3
