"""Packs on a real S3 server: sealed, read, merged, purged."""

from __future__ import annotations

import pytest

from benchmarks.synthetic_cold_tier import KEYS, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from tests.fixtures_s3 import S3Bucket
from tests.tiered.packs.test_packs import TOPICS, Rig, config
from thermocline.tiered.stores.object_store_url import open_object_store


@pytest.mark.s3
async def test_packs_live_and_die_on_a_bucket(any_s3_bucket: S3Bucket) -> None:
    store = await open_object_store(any_s3_bucket.cold_url)
    hot, topics = SyntheticHotTier(), {name: SyntheticTopic() for name in TOPICS}
    try:
        async with opened(store, config(), hot=hot, topics=topics) as tier:
            rig = Rig(tier)
            for _ in range(4):
                await rig.send_and_pack(15)
                await tier.merge_all()
            await rig.check_all()
            topics["alpha"].deleted = True
            hot.delete_topic("alpha")
            tier.report()
            await tier.service.run_once()
            report = await tier.purger.purge("alpha")
            assert report.remaining == ()
            stored = {info.key async for info in store.list(KEYS.packs_prefix)}
            assert stored == {pack.key for pack in tier.catalog.packs.values()}
            rig.sent = {place: sent for place, sent in rig.sent.items() if place[0] != "alpha"}
            await rig.check_all()
    finally:
        await store.close()
