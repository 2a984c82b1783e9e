"""`make test-unit` leaves out what needs servers, and fails a test that starts a program all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit_tests import FOLDERS, LONG, TESTS, ProgramGuard


def test_a_program_is_refused_during_a_test_and_a_python_is_not() -> None:
    guard = ProgramGuard()
    with guard.during_a_test():
        with pytest.raises(pytest.fail.Exception, match="starts no program, and this one starts /bin/true"):
            subprocess.run(["/bin/true"], check=True)
        subprocess.run([sys.executable, "-c", ""], check=True)
    subprocess.run(["/bin/true"], check=True)


def test_the_places_that_are_left_out_exist() -> None:
    assert [place for place in (*FOLDERS, *LONG) if not (TESTS / place).exists()] == []
