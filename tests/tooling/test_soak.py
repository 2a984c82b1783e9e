"""tooling/soak.py: a small checkout with soak tests of its own, run for real."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tooling.soak import main

CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "soak: long")
"""
PASSING = "import pytest\n@pytest.mark.soak\ndef test_long():\n    assert True\n"
FAILING = PASSING.replace("True", "False")
SHORT = "def test_short():\n    assert False\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two files with soak tests, of which one fails, and one file without any."""
    for name, text in {
        "conftest.py": CONFTEST,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['soak: long']\naddopts = '-p no:xdist'\n",
        "test_good.py": PASSING,
        "test_bad.py": FAILING,
        "test_short.py": SHORT,
    }.items():
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    """Git's output."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path) -> str:
    """Commit everything but what a run wrote; the new commit."""
    git(folder, "add", "*.py", "pyproject.toml")
    git(folder, "commit", "-q", "-m", "change")
    return git(folder, "rev-parse", "HEAD")


def test_a_run_goes_on_with_what_has_not_passed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    assert main([], root=checkout) == 1
    printed = capsys.readouterr().out
    assert "passed test_good.py: 1 passed" in printed
    assert "FAILED test_bad.py: 1 failed" in printed
    assert "test_short" not in printed

    (checkout / "test_bad.py").write_text(PASSING)
    assert main(["--since", first], root=checkout) == 2
    assert "not committed" in capsys.readouterr().out
    second = commit(checkout)
    assert main(["--since", first], root=checkout) == 0
    printed = capsys.readouterr().out
    assert "test_good" not in printed, "it has passed since the first commit"
    assert "passed test_bad.py: 1 passed" in printed

    assert main(["--since", second], root=checkout) == 0
    assert "passed test_good.py" in capsys.readouterr().out, "its pass is older than the second commit"


def test_a_named_file_alone_is_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test_good.py"], root=checkout) == 0
    assert "1 of 1 files have passed" in capsys.readouterr().out
