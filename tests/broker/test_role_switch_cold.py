"""Masters change with a cold tier at work: one ledger, one writer at a time, nothing wrong in the bucket.

Covers `broker/recovery/promotion.py`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.role_brokers import NAME, RoleSet, role_set
from tests.broker.role_clients import TOPIC, Load, consumer_of, log_of, make_topic, producer_of, send_until_taken
from tests.waiting import until
from thermocline.client import Message, UnavailableError
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.replication import EpochEntry, EpochFile
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.bucket.bucket_verify import verify
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger import LedgerReader, LedgerWriter
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


async def test_changes_leave_nothing_wrong_in_the_bucket(tmp_path: Path, case_count: Callable[..., int]) -> None:
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        load, seen, rounds = Load(found), set[bytes](), case_count(quick=1, full=5, soak=50)
        async with load.running():
            await load.wait_for(20)
            for number in (2, 1) * rounds:
                await wait_sealed(found)
                await found.wait_followed(number)
                await found.switch(number)
                await load.wait_for(20)
        acknowledged = load.acknowledged
        await wait_sealed(found)
        catalog = await ledger_of(url)
        assert catalog.master_epoch == found.epoch == 1 + 2 * rounds
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


async def test_a_broker_that_may_not_claim_the_ledger_is_no_master(tmp_path: Path) -> None:
    """Broker 2 never was a slave of broker 1, whose ledger it is; later it is one."""
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.elect(1)
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            await send_until_taken(producer, b"of broker 1")
            await wait_sealed(found)
            before = await ledger_of(url)
            with pytest.raises(UnavailableError, match="another store directory"):
                await found.elect(2)
            other = found.brokers[2]
            assert not other.is_master
            assert "another store directory" in other.error
            assert (await ledger_of(url)).store_uuid == before.store_uuid
            await other.process.role_changer.become_slave(found.role_of(2, master=None))
            assert other.error == ""
            await found.elect(1)
            await found.tell_others()
            await found.wait_followed(2)
            await found.switch(2)
            await send_until_taken(producer, b"of broker 2")
        assert other.error == ""
        await wait_sealed(found)
        assert (await ledger_of(url)).store_uuid == other.store.identity.store_id


async def test_a_master_that_has_claimed_and_cannot_serve_holds_no_other_up(tmp_path: Path) -> None:
    """It resigns, and the controllers elect another one of the set before: none of them was ever its slave."""
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.switch(1)
        await make_topic(found)
        await wait_sealed(found)
        await found.wait_followed(2)
        other = found.brokers[2]
        host, _, port = other.ha_address.partition(":")
        with socket.create_server((host, int(port))):
            with pytest.raises(UnavailableError):
                await found.elect(2)
            assert (await ledger_of(url)).store_uuid == other.store.identity.store_id, "it has claimed"
            await found.elect(1)
        async with producer_of(found.namesrv) as producer:
            await send_until_taken(producer, b"of broker 1 again")
        await wait_sealed(found)
        catalog = await ledger_of(url)
        assert catalog.store_uuid == found.brokers[1].store.identity.store_id
        assert catalog.master_epoch == found.epoch == 3


async def test_a_ledger_that_is_away_is_asked_again_in_the_same_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, claim, is_away = f"file://{tmp_path}/bucket", LedgerWriter.open, True

    async def claim_if_there(*args: Any, **named: Any) -> LedgerWriter:
        if is_away and named["identity"].master_epoch == 2:
            raise ObjectStoreUnavailableError("the bucket is away")
        return await claim(*args, **named)

    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        await found.brokers[1].process.close()
        monkeypatch.setattr(LedgerWriter, "open", claim_if_there)
        broker = found.brokers[2]
        with pytest.raises(UnavailableError, match="the bucket is away"):
            await found.elect(2)
        assert not broker.is_master
        epochs = EpochFile(RealDisk(), str(tmp_path / "store-2"))
        assert epochs.epochs.last is not None
        assert epochs.epochs.last.epoch == 2, "it has begun"
        is_away = False
        await until(lambda: broker.is_master and not broker.error, what="it was tried again")
        assert (await ledger_of(url)).master_epoch == 2


async def test_an_old_master_claims_no_ledger_that_a_later_one_has(tmp_path: Path) -> None:
    """Broker 1 is elected, sleeps before it claims, and wakes when broker 2 was elected again."""
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON) as found:
        await found.switch(2)
        await make_topic(found)
        await found.wait_followed(1)
        found.epoch += 1
        sleeper = found.role_of(1, master=1)
        await found.brokers[1].process.role_changer.become_slave(found.role_of(1, master=None))  # it learns no epochs
        await found.elect(2)
        with pytest.raises(UnavailableError, match="a later master of this replica set"):
            await found.brokers[1].process.role_changer.become_master(sleeper, frozenset([1]))
        catalog = await ledger_of(url)
        assert catalog.master_epoch == found.epoch
        assert catalog.store_uuid == found.brokers[2].store.identity.store_id


async def test_offsets_go_on_behind_a_hole_after_an_unclean_election(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broker 2 lacks what broker 1 has put into the bucket, and is elected without it."""
    url = f"file://{tmp_path}/bucket"
    async with role_set(tmp_path, cold_url=url, tier=SOON, store={"log_file_bytes": 1 << 16}) as found:
        await found.switch(1)
        await make_topic(found, queues=1)
        await found.wait_followed(2)
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"on both"))
            await found.wait_copied(2)
            await found.brokers[2].process.role_changer.become_slave(found.role_of(2, master=None))
            for number in range(3):
                await producer.send(Message(TOPIC, b"in the bucket alone %d" % number))
            await wait_sealed(found)
            lacking = found.brokers[2].store.commit_log.append_offset
            assert lacking < (await ledger_of(url)).end_physical_offset
            await found.brokers[1].process.close()
            await found.elect(2)
            await send_until_taken(producer, b"behind the hole")
        queue = found.brokers[2].store.queues.find(TOPIC, 0)
        assert queue is not None
        assert queue.next_offset == 5
        assert f"topic={TOPIC} queue=0 in_bucket_only=1-4 count=3" in caplog.text
        assert f"hole: the log lacks its bytes {lacking} to" in caplog.text
        epochs = EpochFile(RealDisk(), str(tmp_path / "store-2")).epochs
        assert epochs.last == EpochEntry(found.epoch, lacking), "the blanks are the new master's"
        bodies: list[bytes] = []
        async with consumer_of(found.namesrv) as consumer:
            await consumer.subscribe(TOPIC)
            async with asyncio.timeout(60):
                while len(bodies) < 5:
                    bodies += [message.body for message in await consumer.poll(1_000)]
        assert bodies == [
            b"on both",
            *(b"in the bucket alone %d" % number for number in range(3)),
            b"behind the hole",
        ]
        await wait_sealed(found)
        (report,) = await asyncio.to_thread(verify, url, topic=TOPIC, key=None)
        assert report.findings == ()
