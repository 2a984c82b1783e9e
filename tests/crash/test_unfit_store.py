"""A broker on a store that would let two of them commit does not run, unless it goes by ballots."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.unfit_store import WOULD_LET_TWO_COMMIT, refusal_for_a_race
from tests.fixtures_s3 import S3Bucket, new_bucket, objects_in
from tests.waiting import until
from thermocline.localstack import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.crash, pytest.mark.xdist_group("s3-rclone")]


def keys(server: S3Server, bucket: S3Bucket, folder: str) -> list[str]:
    """The objects with this folder in their keys, seen past the broker."""
    return [key for key in objects_in(server, bucket) if f"/{folder}/" in key]


async def test_a_store_that_ignores_conditions_is_refused_in_one_sentence(
    tmp_path: Path, s3_servers: Callable[[str], S3Server]
) -> None:
    server = s3_servers("rclone")
    bucket = new_bucket(server)
    broker = BrokerProcess(tmp_path, {"coldUrl": bucket.cold_url})
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    last_line = broker.log_tail().splitlines()[-1]
    assert last_line.startswith(WOULD_LET_TWO_COMMIT)
    assert last_line.endswith("set coldFencing=ballots, which it is fit for.")
    assert "Traceback" not in broker.log_tail()
    assert not (broker.store / "abort").exists()
    for folder in ("ledger", "doctor", "ballots"):
        assert keys(server, bucket, folder) == []


@pytest.mark.full
@pytest.mark.xdist_group("s3-s3s-fs")
async def test_a_store_that_looks_before_it_writes_is_refused_at_every_start(
    tmp_path: Path, s3_servers: Callable[[str], S3Server], case_count: Callable[..., int]
) -> None:
    """It passes every check that is made one at a time."""
    server = s3_servers("s3s-fs")
    starts = itertools.count()

    async def start() -> str:
        bucket = new_bucket(server)
        broker = BrokerProcess(tmp_path / str(next(starts)), {"coldUrl": bucket.cold_url})
        await broker.start()
        async with asyncio.timeout(wire.PATIENCE_S):
            assert await broker.wait() == 1
        last_line = broker.log_tail().splitlines()[-1]
        # It is readable in part only: a suffix longer than the object gets no answer.
        assert last_line.endswith("use another store.")
        assert keys(server, bucket, "ledger") == []
        return last_line

    for _ in range(case_count(quick=2, soak=20)):
        assert "honours If-None-Match one at a time, but" in await refusal_for_a_race(start)


@pytest.mark.full
@pytest.mark.xdist_group("s3-s3s-fs")
async def test_ballots_do_not_make_a_store_readable(tmp_path: Path, s3_servers: Callable[[str], S3Server]) -> None:
    bucket = new_bucket(s3_servers("s3s-fs"))
    broker = BrokerProcess(tmp_path, {"coldUrl": bucket.cold_url, "coldFencing": "ballots"})
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    last_line = broker.log_tail().splitlines()[-1]
    assert last_line.startswith("thermocline: this store is unfit for the cold tier (it gives a whole object, and no")
    assert last_line.endswith("use another store.")


async def test_a_directory_is_tried_too(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    broker = BrokerProcess(tmp_path / "broker", {"coldUrl": cold.as_uri()})
    await broker.start()
    await until(lambda: any(cold.glob("*/*/ledger/*")), timeout_s=wire.PATIENCE_S)
    assert await broker.stop() == 0
    assert "store checked fencing=conditional" in broker.log
    assert not [path for path in cold.glob("**/doctor/**/*") if path.is_file()]


async def test_with_ballots_it_runs_and_each_start_takes_the_ledger_over(
    tmp_path: Path, s3_servers: Callable[[str], S3Server]
) -> None:
    server = s3_servers("rclone")
    bucket = new_bucket(server)
    broker = BrokerProcess(tmp_path, {"coldUrl": bucket.cold_url, "coldFencing": "ballots"})
    for count in (1, 2):
        await broker.start()
        await until(
            lambda count=count: len(keys(server, bucket, "ledger")) >= count,  # type: ignore[misc]
            timeout_s=wire.PATIENCE_S,
            pause_s=0.2,
        )
        assert len(keys(server, bucket, "ballots")) == count
        await broker.kill()
    assert keys(server, bucket, "doctor") == []
