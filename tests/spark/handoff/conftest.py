"""Two brokers and a NameServer for all tests of this folder: they take longer to start than most tests to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.handoff.cluster import SMALL, Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take the brokers run in one worker."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def cluster_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Brokers with small files that go to the cold tier at once."""
    with Cluster(tmp_path_factory.mktemp("handoff"), broker_count=2, settings=SMALL) as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_of_all: Cluster) -> Cluster:
    """The same, once their tiers run: a test that kills a tier starts it again, without waiting for it."""
    cluster_of_all.wait_for_tiers()
    return cluster_of_all
