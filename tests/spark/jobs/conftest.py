"""What tests of jobs share: a history of two days, and a cluster to send to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon
from tests.spark.cold_tier import ColdTier, directory_url
from tests.tiered.cold_data import Log

NIGHT_MS = 3 * 3_600_000


@pytest.fixture(scope="package")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    """500 messages of `orders` in two queues and two segments, of 14 and 15 November 2023 (UTC); one has no tag."""
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = Log(topic="orders", random=Random(6), queue_count=2)
    log.append_flights(249)
    log.append(0, body=b"untagged", keys="lonely A1")
    log.now_ms += NIGHT_MS
    log.append_flights(250)
    tier.seal_in_pieces(log, 2)
    return tier, log


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """`thermocline dev` in a process of its own: what it said when it was ready."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    daemon = Daemon(["dev", "--data", "data", "--namesrv", FREE_ADDRESS, "--listen", FREE_ADDRESS], directory)
    try:
        yield daemon.ready()
    finally:
        status = daemon.stop()
    assert status == 0
