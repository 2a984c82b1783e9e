"""A directory that is made once: complete or not there, and made by one of several callers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from thermocline.localstack.errors import LocalStackError
from thermocline.localstack.made_once import made_once


def test_one_of_several_callers_makes_it(tmp_path: Path) -> None:
    target, made, all_there = tmp_path / "tools" / "v1.2", [], threading.Barrier(4)

    def fill(partial: Path) -> None:
        partial.mkdir()
        assert not target.exists()
        (partial / "program").write_text("text")
        made.append(partial)

    def call() -> Path:
        all_there.wait()
        return made_once(target, fill, doing="making")

    with ThreadPoolExecutor(4) as pool:
        assert {future.result() for future in [pool.submit(call) for _ in range(4)]} == {target}
    assert len(made) == 1
    assert (target / "program").read_text() == "text"


def test_a_failed_attempt_leaves_no_file_and_may_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "tools"

    def fail(partial: Path) -> None:
        partial.mkdir()
        raise LocalStackError("no answer")

    with pytest.raises(LocalStackError, match="no answer"):
        made_once(target, fail, doing="installing tools")
    assert [path.name for path in tmp_path.iterdir()] == ["tools.lock"]
    assert capsys.readouterr().err == "installing tools (once)\n"
    assert made_once(target, Path.mkdir, doing="installing tools") == target
