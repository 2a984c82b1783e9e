"""Masters change with a cold tier at work: one ledger, one writer at a time, nothing wrong in the bucket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.role_brokers import NAME, RoleSet, role_set
from tests.broker.test_role_switch import TOPIC, Load, consumer_of, log_of, make_topic, producer_of, send_until_taken
from tests.waiting import until
from thermocline.tiered.bucket.bucket_verify import verify
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger import LedgerReader
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.stores import open_object_store

SOON: dict[str, Any] = {"seal_age_ms": 500, "account_interval_ms": 100}
KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name=NAME)


async def ledger_of(url: str) -> Catalog:
    bucket = await open_object_store(url)
    try:
        return (await LedgerReader.open(bucket, KEYS)).catalog
    finally:
        await bucket.close()


async def wait_sealed(found: RoleSet) -> None:
    """Return when all messages of the topic are in the ledger that the master writes."""
    assert found.master is not None
    broker = found.brokers[found.master]
    end = broker.store.commit_log.append_offset
    await until(
        lambda: (broker.parts.tier.gate.now().committed_offset or 0) >= end,
        what="what the master has is in the bucket",
        timeout_s=60,
    )


async def test_ten_changes_leave_nothing_wrong_in_the_bucket(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        load, seen = Load(found), set[bytes]()
        async with load.running():
            await load.wait_for(20)
            for number in (2, 1) * 5:
                await wait_sealed(found)
                await until(lambda to=number: enrolled(found, to), what="the slave follows the master's ledger")
                await found.wait_followed(number)
                await found.switch(number)
                await load.wait_for(20)
        acknowledged = load.acknowledged
        await wait_sealed(found)
        catalog = await ledger_of(url)
        assert catalog.master_epoch == found.epoch == 11
        assert catalog.store_uuid == found.brokers[1].store.identity.store_id
        (report,) = await asyncio.to_thread(verify, url, topic=TOPIC, key=None)
        assert report.findings == ()
        assert report.segment_count + report.pack_count > 0
        await found.wait_copied(2)
        assert log_of(found, 1) == log_of(found, 2)
        async with consumer_of(found.namesrv) as consumer:
            await consumer.subscribe(TOPIC)
            async with asyncio.timeout(60):
                while not set(acknowledged) <= seen:
                    seen.update(message.body for message in await consumer.poll(1_000))
        print(found.switch_seconds)


def enrolled(found: RoleSet, number: int) -> bool:
    """Whether a slave may take the ledger of the present master over."""
    assert found.master is not None
    enrolment = found.brokers[number].parts.replicas.enrolment
    master_store = found.brokers[found.master].store.identity.store_id
    return enrolment is not None and enrolment.master_store_id == master_store


async def test_a_master_that_may_not_claim_the_ledger_is_none(tmp_path: Path) -> None:
    """Broker 2 was never a slave of broker 1, whose ledger it is."""
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.switch(1)
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            await send_until_taken(producer, b"of broker 1")
        await wait_sealed(found)
