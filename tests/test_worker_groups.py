"""Tests of one `xdist_group` run on one worker, so that what they share is started once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("worker-groups")
def test_the_group_reaches_the_scheduler(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@worker-groups")
