"""The environment is made from the lock file, and the lock file alone."""

from __future__ import annotations

import re

from tooling import python_environment


def test_the_first_packages_come_with_their_hashes() -> None:
    (requirement, *hashes) = python_environment._requirements_of(("setuptools",)).replace("\\\n", "").split()
    assert re.fullmatch(r"setuptools==[\d.]+", requirement)
    assert hashes
    assert all(word.startswith("--hash=sha256:") for word in hashes)


def test_the_stamp_depends_on_the_sources_of_the_environment() -> None:
    digest = python_environment._digest()
    assert digest == python_environment._digest()
    assert re.fullmatch(r"[0-9a-f]{64}", digest)
