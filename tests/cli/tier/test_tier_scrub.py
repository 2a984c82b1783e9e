"""`thermocline tier scrub` on a running broker and on its bucket, with a real object store.

Covers `tiered/scrub/bucket_scrub.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.test_daemons import Daemon, ask, waiting
from tests.fixtures_s3 import new_bucket
from tests.waiting import wait_until
from thermocline.cli.main import run
from thermocline.cli.tier.steady_scrub_notes import steady_notes
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.localstack import S3Server
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = pytest.mark.xdist_group("s3-minio")

KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
TOPIC = "scrubbed"
Result = TypeVar("Result")


@pytest.fixture(scope="module")
def served(s3_servers: Callable[[str], S3Server], module_folder: Path) -> Iterator[dict[str, str]]:
    """A running `thermocline dev` whose cold tier is in MinIO; `url` is that."""
    url = new_bucket(s3_servers("minio")).cold_url
    arguments = ["dev", "--data", "data", "--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--cold", url]
    daemon = Daemon([*arguments, "--set", "coldFrameBytes=4096"], module_folder)
    try:
        yield daemon.ready() | {"url": url}
    finally:
        assert daemon.stop() == 0


def on_bucket(url: str, work: Callable[[ObjectStore], Awaitable[Result]]) -> Result:
    """Do something to the bucket behind the broker's back."""

    async def do() -> Result:
        store = await open_object_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(do())


async def damage(store: ObjectStore) -> tuple[str, str]:
    """One flipped bit in the records of a segment, and the key index of another gone; their keys."""
    one, two = (await open_catalog(store, KEYS)).topics[TOPIC].segments
    data = bytearray(await store.get(one.log.key))
    data[len(data) // 3] ^= 1
    await store.put(one.log.key, data)
    await store.delete(two.idx.key)
    return one.log.key, two.idx.key


async def records(store: ObjectStore) -> dict[tuple[int, int], bytes]:
    """Every run of records in the bucket, by queue and first offset."""
    found: dict[tuple[int, int], bytes] = {}
    for segment in (await open_catalog(store, KEYS)).topics[TOPIC].segments:
        for run_of_queue in segment.runs:
            start, end = run_of_queue.start_offset, run_of_queue.end_offset
            parts = SegmentReader(store, segment).records(run_of_queue.queue_id, start_offset=start, end_offset=end)
            found[run_of_queue.queue_id, start] = b"".join([bytes(part.data) async for part in parts])
    return found


def scrub(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status, and the one report."""
    status = run(["tier", "scrub", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert out, err
    (report,) = json.loads(out)["reports"]
    return status, report


def test_a_bucket_is_checked_and_its_broker_heals_it(
    served: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ask(capsys, served, "topic", "create", TOPIC, "--queues", "2")
    with Producer(namesrv=served["namesrv"]) as producer:
        for batch in range(2):
            producer.send_many(Message(TOPIC, b"%d/%d" % (batch, i) * 50, keys=f"k{i}") for i in range(100))
            wait_until(
                lambda: waiting(capsys, served, TOPIC) == 100,
                what="the tier process has the end offsets of the messages",
                interval_s=0.05,
            )
            assert len(ask(capsys, served, "tier", "seal", TOPIC)) == 1
    broker = ("--namesrv", served["namesrv"])
    for arguments in (broker, (*broker, "--deep", "--heal"), (served["url"],), (served["url"], "--deep")):
        status, report = scrub(capsys, *arguments)
        assert (status, report["findings"], report["segment_count"]) == (0, [], 2), arguments
    before = on_bucket(served["url"], records)
    assert len(before) == 4
    flipped, removed = on_bucket(served["url"], damage)

    # Names and sizes reveal a missing object, reading an altered one; a reader of the bucket changes nothing.
    status, report = scrub(capsys, served["url"])
    assert (status, [finding["key"] for finding in report["findings"]]) == (1, [removed])
    state = str(tmp_path / "state.json")
    status, report = scrub(capsys, served["url"], "--deep", "--budget", "1", "--state", state)
    assert not report["is_complete"]
    keys = {finding["key"] for finding in report["findings"]}
    status, report = scrub(capsys, served["url"], "--deep", "--budget", "1GiB", "--rate", "1GiB", "--state", state)
    assert report["is_complete"]
    assert {*keys, *(finding["key"] for finding in report["findings"])} == {flipped, removed}
    status, report = scrub(capsys, *broker, "--deep")
    assert (status, report["broken"]) == (1, 2)
    assert ask(capsys, served, "tier", "status", TOPIC)["broker-a"]["lastScrub"]["broken"] == 2

    status, report = scrub(capsys, *broker, "--deep", "--heal")
    assert (status, [finding["outcome"] for finding in report["findings"]]) == (0, ["healed", "healed"])
    assert on_bucket(served["url"], records) == before
    for arguments in ((*broker, "--deep"), (served["url"], "--deep")):
        status, report = scrub(capsys, *arguments)
        assert (status, report["findings"]) == (0, []), arguments
    assert run(["tier", "scrub", *broker]) == 0
    printed = capsys.readouterr().out
    assert "0 broken" in printed
    assert "not read: " in printed
    assert "whose bytes may be damaged" in printed
    assert "healed" not in printed
    assert run(["tier", "scrub", *broker, "--deep"]) == 0
    assert "not read" not in capsys.readouterr().out


def test_the_steady_scrub_is_shown_and_its_budget_counts_at_once(
    served: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def steady() -> dict[str, Any]:
        found: dict[str, Any] = ask(capsys, served, "tier", "status")["broker-a"]["steadyScrub"]
        return found

    wait_until(lambda: steady() is not None, what="the tier process serves", interval_s=0.05)
    assert steady()["bytesPerDay"] == 64 << 30
    ask(capsys, served, "broker", "config", "set", "broker-a", "coldScrubBytesPerDay=0")
    wait_until(lambda: steady()["bytesPerDay"] == 0, what="the setting counts", interval_s=0.05)
    assert run(["tier", "status", "--namesrv", served["namesrv"]]) == 0
    assert "no byte is read by itself" in capsys.readouterr().err
    ask(capsys, served, "broker", "config", "set", "broker-a", f"coldScrubBytesPerDay={1 << 30}")
    wait_until(lambda: steady()["bytesPerDay"] == 1 << 30, what="the setting counts", interval_s=0.05)


def test_broken_objects_and_a_small_budget_are_named() -> None:
    steady = {
        "bytesPerDay": 1 << 20,
        "isPassOver": False,
        "wholeEndedMs": 0,
        "readCount": 3,
        "readBytes": 3 << 20,
        "remainingBytes": 90 << 20,
        "daysNeeded": 93.4,
        "isTooSlow": True,
        "isStoreAway": True,
        "error": "",
        "brokenCount": 3,
        "broken": ["a.log: damaged", "b.pack: missing"],
    }
    assert list(steady_notes(steady)) == [
        "not every byte was read yet; 3 objects (3.0 MiB) are read in this pass, 90.0 MiB are left",
        "reading every byte takes 93 days by coldScrubBytesPerDay (1.0 MiB), more than 30",
        "reading waits for the object store",
        "broken: a.log: damaged",
        "broken: b.pack: missing",
        "broken: 1 objects more",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--budget", "1GiB"], 2, "--deep"),
        (["file:///nowhere", "--heal"], 2, "broker"),
        (["--state", "file.json"], 2, "URL"),
        (["--afresh"], 2, "--deep"),
        (["file:///nowhere", "--state", "file.json"], 2, "--deep"),
        (["file:///nowhere", "--afresh"], 2, "--deep"),
        (["--deep", "--budget", "much"], 2, "512MiB"),
        (["memory://nothing-is-here"], 1, "no cold tier"),
        (["ftp://nowhere"], 1, "object store"),
    ],
)
def test_invalid_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    assert run(["tier", "scrub", *arguments]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
