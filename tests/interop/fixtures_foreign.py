"""Fixtures of the tests with clients that RocketMQ's Java and Go teams did not write: one broker for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.cluster import Daemons, thermocline_daemons
from thermocline.client import AdminClient

SETTINGS = {
    # Levels 3 and 4, those of the first two tries to consume again, are shorter than RocketMQ's.
    "messageDelayLevel": "1s 5s 1s 1s 3s 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
}


@pytest.fixture(scope="session")
def foreign_daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A NameServer and a broker, shared by all tests of the worker."""
    with thermocline_daemons(tmp_path_factory.mktemp("foreign-cluster"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def foreign_admin(foreign_daemons: Daemons) -> Iterator[AdminClient]:
    """An admin client of theirs."""
    with AdminClient(namesrv=foreign_daemons.namesrv) as running:
        yield running
