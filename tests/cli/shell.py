"""Shell: runs commands in the test's process against a fake broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thermocline.cli.main import run


class Shell:
    """Keeps what the last command wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str], namesrv: str) -> None:
        self._capsys = capsys
        self.namesrv = namesrv
        self.out = self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Run a command, expect its exit status, return its stdout."""
        namesrv = ["--namesrv", self.namesrv] if self.namesrv else []
        actual = run([*arguments, *namesrv])
        self.out, self.err = self._capsys.readouterr()
        assert actual == status, self.out + self.err
        assert "Traceback" not in self.err
        return self.out

    def json(self, *arguments: str) -> Any:
        """Run a command and return what it said to programs."""
        return json.loads(self(*arguments, "--json"))
