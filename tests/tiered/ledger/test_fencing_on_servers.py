"""Two brokers race over HTTP in the mode that the doctor chose: behind a proxy that drops conditions, and on rclone."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from random import Random

import pytest

from tests.fixtures_s3 import S3Bucket, new_bucket
from tests.s3_proxy import S3Proxy
from tests.tiered.ledger_data import KEYS
from tests.tiered.ledger_races import Believer, judge, live
from tests.tiered.objects.test_object_store import elsewhere, open_s3
from thermocline.localstack import S3Server
from thermocline.tiered.ledger.fencing import EntryArbiter, FencingMode, new_arbiter
from thermocline.tiered.objects.errors import LedgerCorruptError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.s3 import S3ObjectStore

pytestmark = pytest.mark.s3

RACES_AT_ONCE = 4


async def chosen_by_the_doctor(url: str) -> FencingMode:
    """The mode that `thermocline store doctor URL` chooses, with its default tries."""
    command = (sys.executable, "-m", "thermocline.cli", "store", "doctor", url, "--json")
    doctor = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await doctor.communicate()
    return FencingMode(json.loads(output)["fencing_chosen"])


async def race(
    one: S3ObjectStore, two: S3ObjectStore, witness: S3ObjectStore, *, seed: int, mode: FencingMode
) -> list[str]:
    """One race under a prefix of its own, each broker over a client of its own; what `witness` finds wrong.

    A ledger that a broker cannot read is wrong too: in the mode that loses, entries are replaced while they are read.
    """

    def new(store: ObjectStore, random: Random) -> EntryArbiter:
        return new_arbiter(mode, store, KEYS, random=random)

    believers = [Believer("one"), Believer("two")]
    stores = [elsewhere(store, prefix=f"race-{seed:05}") for store in (one, two)]
    ended = await asyncio.gather(
        *(
            live(believer, store, new_arbiter=new, random=Random(f"{seed} {believer.name}"), commits=1)
            for believer, store in zip(believers, stores, strict=True)
        ),
        return_exceptions=True,
    )
    errors = [error for error in ended if error is not None]
    if errors:
        unexpected = next((error for error in errors if not isinstance(error, LedgerCorruptError)), None)
        if unexpected is not None:
            raise unexpected
        return list(map(str, errors))
    return await judge(believers, elsewhere(witness, prefix=f"race-{seed:05}"))


async def wrong_races(
    bucket: S3Bucket, mode: FencingMode, count: int, *, behind: S3Bucket | None = None
) -> dict[int, list[str]]:
    """The races of `count` that went wrong, looked at in the bucket `behind` the one that the brokers know."""
    slots = asyncio.Semaphore(RACES_AT_ONCE)
    async with open_s3(bucket) as one, open_s3(bucket) as two, open_s3(behind or bucket) as witness:

        async def judged(seed: int) -> tuple[int, list[str]]:
            async with slots:
                return seed, await race(one, two, witness, seed=seed, mode=mode)

        outcomes = await asyncio.gather(*map(judged, range(count)))
    return {seed: wrong for seed, wrong in outcomes if wrong}


async def test_behind_a_proxy_that_drops_the_condition(s3_bucket: S3Bucket, case_count: Callable[..., int]) -> None:
    async with S3Proxy(s3_bucket, drops=("If-None-Match",)) as proxy:
        chosen = await chosen_by_the_doctor(proxy.bucket.cold_url)
        assert chosen is FencingMode.BALLOTS
        dropped = proxy.drop_count
        count = case_count(quick=2, full=12, soak=10_000)
        assert await wrong_races(proxy.bucket, chosen, count, behind=s3_bucket) == {}
        assert proxy.drop_count > dropped


async def test_behind_the_same_proxy_the_other_mode_loses(s3_bucket: S3Bucket) -> None:
    """Else the test above would show nothing."""
    async with S3Proxy(s3_bucket, drops=("If-None-Match",)) as proxy:
        assert await wrong_races(proxy.bucket, FencingMode.CONDITIONAL, 10, behind=s3_bucket)


@pytest.mark.xdist_group("s3-rclone")
async def test_on_rclone(s3_servers: Callable[[str], S3Server], case_count: Callable[..., int]) -> None:
    bucket = new_bucket(s3_servers("rclone"))
    chosen = await chosen_by_the_doctor(bucket.cold_url)
    assert chosen is FencingMode.BALLOTS
    assert await wrong_races(bucket, chosen, case_count(quick=6, soak=2_000)) == {}
