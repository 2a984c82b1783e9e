"""What is looked for on the machine: the newest fitting Java wins, and what is missing is named in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from thermocline.localstack import ToolMissingError
from tooling import system_packages
from tooling.system_packages import find_c_compiler, find_java_home, find_maven


def fake_java(home: Path, version: str, *programs: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="Vendor"\nJAVA_VERSION="{version}"\n')
    for program in programs:
        (home / "bin" / program).touch(mode=0o755)
    return home


@pytest.fixture
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No programs on the PATH, no Java anywhere, no right to install any."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(system_packages, "JAVA_DIRECTORY", tmp_path / "jvm")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return monkeypatch


def test_java_home_is_taken_when_it_is_new_enough(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "here", "21.0.4", "java", "javac")
    empty_machine.setenv("JAVA_HOME", str(home))
    assert find_java_home(with_compiler=True) == home


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_is_passed_over(version: str, empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty_machine.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version, "java", "javac")))
    newer = fake_java(tmp_path / "jvm" / "java-17", "17.0.15", "java", "javac")
    assert find_java_home(with_compiler=True) == newer


def test_a_runtime_is_not_a_development_kit(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm" / "java-17", "17.0.15", "java")
    assert find_java_home(with_compiler=False) == home
    with pytest.raises(ToolMissingError, match="JDK of version 17 or newer is needed"):
        find_java_home(with_compiler=True)


def test_missing_packages_are_named(empty_machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolMissingError, match="Maven is needed"):
        find_maven()
    with pytest.raises(ToolMissingError, match="C compiler is needed"):
        find_c_compiler()
    with pytest.raises(ToolMissingError, match="Java runtime"):
        system_packages.ensure_java_home(with_compiler=False)


def test_a_balancer_is_found_where_users_paths_do_not_lead(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty_machine.setattr(system_packages, "SYSTEM_PROGRAMS", str(tmp_path / "sbin"))
    with pytest.raises(ToolMissingError, match="HAProxy is needed"):
        system_packages.ensure_haproxy()
    (tmp_path / "sbin").mkdir()
    program = tmp_path / "sbin" / "haproxy"
    program.touch(mode=0o755)
    assert system_packages.ensure_haproxy() == program


def test_a_missing_tool_skips_here_and_fails_in_ci(empty_machine: pytest.MonkeyPatch) -> None:
    empty_machine.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Maven is needed"):
        have(find_maven)
    empty_machine.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Maven is needed"):
        have(find_maven)
