"""A real broker whose bucket goes away for longer than it keeps local files: three seal ages, at full produce rate.

Thirty minutes against the default seal age of ten, with time compressed: in `make test` a second stands for five
minutes, in `make soak` for one. Sends go on as before, none fails; readers of history get a retry answer, and status
and health report the outage; afterwards the bucket holds every message once, and only objects that the ledger names.

What "as before" means is measured against a second broker whose bucket stays, and which is sent the same at the same
time (`produce_meter.py`): whatever else the machine does, it does to both.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import held_ranges, listed_keys, named_keys, newest
from tests.crash.produce_meter import PairMeter, check_unaffected
from tests.crash.test_kill_nine import local_minimums
from tests.fixtures_s3 import new_bucket
from tests.waiting import until
from thermocline.localstack import S3Server
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.stores.object_store_url import open_object_store

TOPIC = "Outage"
QUEUES = 4
PRODUCERS = 4
BATCH = 20
BODY_BYTES = 300
OUTAGE_MINUTES, BEFORE_MINUTES = 30, 15
SEND_TIMEOUT_S = 10.0
FILE_BYTES = int(TINY_FILES_GO_AT_ONCE["mappedFileSizeCommitLog"])


class Producers:
    """Send without a pause, and remember what was acknowledged. A send that fails ends them. `took_s`: each send's."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.took_s: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        """How many messages were acknowledged."""
        return len(self.acknowledged)

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(PRODUCERS)]

    async def stop(self) -> None:
        """End; raises what a producer failed with."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _send(self, number: int) -> None:
        connection = await ClientConnection.open(self._address)
        loop, round_number = asyncio.get_running_loop(), 0
        try:
            while True:
                queue_id = (number + round_number) % QUEUES
                bodies = [
                    f"{number}/{round_number}/{index}/".encode().ljust(BODY_BYTES, b".") for index in range(BATCH)
                ]
                started_s = loop.time()
                answer = await wire.send_batch(connection, TOPIC, queue_id, [(body, "") for body in bodies])
                self.took_s.append(loop.time() - started_s)
                for index, body in enumerate(bodies):
                    self.acknowledged[queue_id, answer.queue_offset + index] = body
                round_number += 1
        finally:
            connection.close()


async def health(broker: BrokerProcess) -> dict[str, Any]:
    """What the health endpoint says, with its HTTP status as `code`."""
    ports = re.findall(r"health endpoint port=(\d+)", broker.log)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(ports[-1]))
    writer.write(b"GET /health HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    details: dict[str, Any] = json.loads(body)
    return details | {"code": int(head.split()[1])}


async def until_cold_is(broker: BrokerProcess, state: str) -> dict[str, Any]:
    """Wait until the broker says so; the health endpoint's answer then."""
    answer: dict[str, Any] = {}

    async def is_so() -> bool:
        nonlocal answer
        answer = await health(broker)
        return bool(answer["cold"]["state"] == state)

    await wire.until_true(is_so)
    return answer


async def waiting_messages(connection: ClientConnection) -> int:
    """How many messages the tier process has not committed; -1 while it does not know."""
    status = await wire.tier_status(connection)
    counts = [queue["waitingMessages"] for topic in status["topics"] for queue in topic["queues"]]
    return -1 if None in counts else sum(counts)


async def check_all(connection: ClientConnection, acknowledged: dict[tuple[int, int], bytes]) -> None:
    """Every acknowledged message is served once, in order, without a gap."""
    queues: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
    for (queue_id, offset), body in acknowledged.items():
        queues[queue_id][offset] = body
    for queue_id, bodies in queues.items():
        end = await wire.max_offset(connection, TOPIC, queue_id)
        records = await wire.read_queue(connection, TOPIC, queue_id, start=0, end=end)
        assert [record.queue_offset for record in records] == list(range(end))
        served = {record.queue_offset: record.body for record in records}
        assert bodies.items() <= served.items()


async def is_caught_up(connection: ClientConnection) -> bool:
    """Whether the tier process has committed everything."""
    return await waiting_messages(connection) == 0


async def check_bucket(url: str) -> None:
    """Each message is in one segment or pack; after garbage collection every object has a name in the ledger."""
    store = await open_object_store(url)

    async def is_clean() -> bool:
        return await listed_keys(store) == await named_keys(store)

    try:
        await wire.until_true(is_clean)
        ranges = held_ranges(await newest(store), TOPIC)
    finally:
        await store.close()
    assert len(ranges) == QUEUES
    for found in ranges.values():
        assert found[0][0] == 0
        assert all(before[1] == after[0] for before, after in itertools.pairwise(found)), "gap or duplicate"


def properties(url: str, *, minute_ms: int) -> dict[str, str]:
    """A broker whose times are so much shorter than the defaults."""
    return {
        **TINY_FILES_GO_AT_ONCE,
        "healthPort": "0",
        # How long a send took is looked at here; how late a process gets its turn is the machine's doing.
        "waitTimeMillsInSendQueue": str(int(SEND_TIMEOUT_S * 1_000)),
        "coldUrl": url,
        "coldSealAgeMs": str(10 * minute_ms),
        "coldSegmentBytes": str(4 << 20),
        "coldAccountIntervalMs": str(max(20, minute_ms // 60)),
        "coldStateIntervalMs": "500",
        "coldSweepIntervalMs": "500",
        "coldGraceMs": "2000",
        "mappedFileSizeConsumeQueue": str(20 * 1_000),
        "maxHashSlotNum": "5000",
        "maxIndexNum": "20000",
    }


@asynccontextmanager
async def under_load(
    folder: Path, url: str, *, minute_ms: int
) -> AsyncIterator[tuple[BrokerProcess, ClientConnection, Producers]]:
    """A broker with the topic, a connection to it, and producers that send; it stops in the end without a complaint."""
    broker = BrokerProcess(folder, properties(url, minute_ms=minute_ms))
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        producers = Producers(broker.address)
        producers.start()
        yield broker, connection, producers
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.s3
async def test_produce_goes_on_through_half_an_hour_without_the_bucket(
    tmp_path: Path, case_count: Callable[..., int], private_s3_server: S3Server
) -> None:
    minute_ms = case_count(quick=200, soak=1_000)
    url = new_bucket(private_s3_server).cold_url
    beside_url = (tmp_path / "cold-beside").as_uri()
    async with (
        under_load(tmp_path / "beside", beside_url, minute_ms=minute_ms) as (beside, beside_connection, its_producers),
        under_load(tmp_path / "broker", url, minute_ms=minute_ms) as (broker, connection, producers),
    ):

        def measuring() -> PairMeter:
            return PairMeter((broker.pid, producers.took_s), (beside.pid, its_producers.took_s), batch=BATCH)

        async def is_something_cold_alone() -> bool:
            return bool(await local_minimums(connection)) and bool(await local_minimums(beside_connection))

        await wire.until_true(is_something_cold_alone)
        assert (await until_cold_is(broker, "serving"))["status"] == "ok"
        meter = measuring()
        await asyncio.sleep(BEFORE_MINUTES * minute_ms / 1_000)
        before = meter.read()
        await asyncio.to_thread(private_s3_server.kill)
        degraded = await until_cold_is(broker, "degraded")
        assert (degraded["code"], degraded["status"]) == (200, "degraded")
        assert degraded["cold"]["sinceMs"] > 0
        minimums = await local_minimums(connection)
        meter = measuring()
        await asyncio.sleep(OUTAGE_MINUTES * minute_ms / 1_000)
        during = meter.read()
        # No client skips messages that cannot be read now, and no further file was deleted.
        pulled = await wire.pull(connection, TOPIC, 0, 0, group="newcomer")
        assert pulled.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY)
        assert pulled.next_offset <= minimums[TOPIC, 0]
        waiting = await waiting_messages(connection)
        assert (await health(broker))["cold"]["state"] == "degraded"
        log_lines = broker.log.count("object store does not answer")
        await asyncio.to_thread(private_s3_server.restart)
        await until_cold_is(broker, "serving")
        check_unaffected(before, during)
        assert waiting > 0
        assert log_lines == 1, "one line a change of state"
        await producers.stop()
        await its_producers.stop()
        beside_connection.close()
        await wire.until_true(partial(is_caught_up, connection))
        await check_all(connection, producers.acknowledged)
        assert await local_minimums(connection), "some of it from the bucket alone"
        await check_bucket(url)
        connection.close()


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.s3
async def test_a_broker_starts_without_its_bucket(tmp_path: Path, private_s3_server: S3Server) -> None:
    """Hot messages are served, cold ones wait, no pull skips them; when the bucket is back all is as before."""
    url = new_bucket(private_s3_server).cold_url
    async with under_load(tmp_path / "broker", url, minute_ms=50) as (broker, connection, producers):

        async def is_everything_begun_cold() -> bool:
            return len(await local_minimums(connection)) == QUEUES

        await wire.until_true(is_everything_begun_cold)
        await producers.stop()
        connection.close()
        assert await broker.stop() == 0
        await asyncio.to_thread(private_s3_server.kill)
        await broker.start()
        degraded = await until_cold_is(broker, "degraded")
        assert degraded["code"] == 200
        connection = await ClientConnection.open(broker.address)
        status = await wire.tier_status(connection)
        assert (status["cold"]["state"], status["ledgerVersion"]) == ("degraded", None)
        minimum = (await local_minimums(connection))[TOPIC, 0]
        cold = await wire.pull(connection, TOPIC, 0, 0)
        assert (cold.code, cold.next_offset) == (ResponseCode.SYSTEM_BUSY, 0)
        end = await wire.max_offset(connection, TOPIC, 0)
        hot = await wire.read_queue(connection, TOPIC, 0, start=minimum, end=end)
        assert [record.queue_offset for record in hot] == list(range(minimum, end))
        with pytest.raises(wire.Refused) as refused:
            await wire.min_offset(connection, TOPIC, 0)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY, "the local minimum would make a client skip history"
        later = Producers(broker.address)
        later.start()
        await until(lambda: later.count * BODY_BYTES > FILE_BYTES, what="a log file is full")
        await wire.run_retention(connection)
        await later.stop()
        assert (await local_minimums(connection))[TOPIC, 0] == minimum, "no file is deleted while no commit succeeds"
        await asyncio.to_thread(private_s3_server.restart)
        await until_cold_is(broker, "serving")
        await wire.until_true(partial(is_caught_up, connection))
        await check_all(connection, producers.acknowledged | later.acknowledged)
        await check_bucket(url)
        connection.close()
