"""Writes `golden/v1-broker/`: a small bucket that a broker process has written, and what it must be read as.

    python -m tests.tiered.broker_golden        in the repository's root

It has what `make_golden.py` cannot write: state snapshots, in objects and in an entry of the ledger; a pin; packs of
two classes of times to live, some of them merged; segments of their own; index objects; a checkpoint; and topics whose
messages were delayed, timed, sent in transactions, sent back by a consumer, deleted.

What an earlier release wrote stays as it is, and stays readable. Run this only when a kind of part, the ledger or the
state gets a new version (docs/cold-format.md 5.1), for a new folder: change VERSION first.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.clock import now_ms
from tests.crash import wire
from tests.crash.broker_process import FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, listed_keys, named_keys, newest
from tests.crash.recovery_load import read_encoded
from tests.releases.waiting_messages import COMMIT, DECIDED, ROLL_BACK, WaitingMessages
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.tiered.ledger.pins import Pin, create_pin
from thermocline.tiered.objects.errors import VersionExpiredError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.state.carried_state import find_carried
from thermocline.tiered.state.newest_state import list_names
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.stores.object_store_url import open_object_store

VERSION = "v1-broker"
GOLDEN = Path(__file__).parent / "golden"
PLAIN, LARGE, FLEETING, DELAYED, GONE = "GoldenPlain", "GoldenLarge", "GoldenFleeting", "GoldenDelayed", "GoldenGone"
GROUP, PIN = "golden-group", "golden-pin"
QUEUES = {PLAIN: 3, LARGE: 1, FLEETING: 1, DELAYED: 1, DECIDED: 1, GONE: 1}
FLEETING_TTL_MS = 300_000
"""Longer than writing takes; over when the bucket is in the repository."""
PINNED_UNTIL_MS = 4_000_000_000_000
ROUNDS = 34
"""More than entries between two checkpoints, and twice the packs that are merged into one."""
SETTINGS = {
    **FILES_GO_AT_ONCE,
    "coldUrl": "",
    "mappedFileSizeCommitLog": str(1 << 20),
    "coldSegmentBytes": str(64 << 10),
    "coldFrameBytes": str(16 << 10),
    "coldCompressionLevel": "19",
    "coldSealAgeMs": "60000",
    "coldStateIntervalMs": "400",
    "coldGraceMs": "100",
    "coldSweepIntervalMs": "500",
    "flushConsumerOffsetInterval": "100",
}


async def golden_bucket() -> MemoryObjectStore:
    """A copy in memory."""
    bucket, folder = MemoryObjectStore(), GOLDEN / VERSION / "bucket"
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            await bucket.put(str(path.relative_to(folder)), path.read_bytes())
    return bucket


async def send_round(connection: ClientConnection, number: int) -> None:
    """A few messages to each topic that goes up in packs; now and then as many to another as a segment has."""
    for queue_id in range(QUEUES[PLAIN]):
        properties = f"KEYS\x01plain{number} all\x02TAGS\x01{'AB'[number % 2]}\x02"
        await wire.send(connection, PLAIN, queue_id, b"plain %d/%d" % (number, queue_id), properties=properties)
    await wire.send(connection, FLEETING, 0, b"fleeting %d" % number, properties=f"KEYS\x01fleeting{number}\x02")
    if number % 12 == 0:
        for line in range(70):
            body = b"large %d/%d " % (number, line) + b"a line that compresses well " * 40
            await wire.send(connection, LARGE, 0, body, properties=f"KEYS\x01large{number}-{line}\x02")


async def send_others(connection: ClientConnection) -> None:
    """Messages that come by other ways than a plain send, and a topic that is deleted."""
    await wire.send(connection, DELAYED, 0, b"delayed", properties="DELAY\x011\x02")
    await wire.send(connection, DELAYED, 0, b"timed", properties=f"TIMER_DELIVER_MS\x01{now_ms() + 1_500}\x02")
    transactions = WaitingMessages()
    for body, decision in ((b"committed", COMMIT), (b"rolled back", ROLL_BACK)):
        end = await transactions.send_half(connection, body)
        end.commit_or_rollback = decision
        await wire.ask(connection, RequestCode.END_TRANSACTION, end)
    sent = await wire.send(connection, PLAIN, 0, b"to be sent back", properties="KEYS\x01back\x02")
    back = ConsumerSendMsgBackRequestHeader(
        offset=sent.physical_offsets[0], group=GROUP, delay_level=1, origin_topic=PLAIN, max_reconsume_times=3
    )
    await wire.ask(connection, RequestCode.CONSUMER_SEND_MSG_BACK, back)
    await wire.send(connection, GONE, 0, b"gone")

    async def are_delivered() -> bool:
        ends = [await wire.max_offset(connection, topic, 0) for topic in (DELAYED, DECIDED, f"%RETRY%{GROUP}")]
        return ends == [2, 1, 1]

    await wire.until_true(are_delivered)


async def holds_only_what_is_named(bucket: ObjectStore) -> bool:
    """Whether the bucket holds the objects that its ledger names, the pin, and no other."""
    return await listed_keys(bucket) - {KEYS.pin(PIN)} == await named_keys(bucket)


async def has_pinned_a_state(bucket: ObjectStore) -> bool:
    """Pin the version whose entry carries the newest state; False when that one may be collected already."""
    version = (await newest(bucket)).state_version
    if await find_carried(bucket, KEYS, version=version) is None:
        return False
    try:
        pin = Pin(pin_id=PIN, version=version, until_ms=PINNED_UNTIL_MS, owner="the golden bucket")
        await create_pin(bucket, KEYS, pin)
    except VersionExpiredError:
        return False
    return await find_carried(bucket, KEYS, version=version) is not None


async def is_settled(bucket: ObjectStore) -> bool:
    """Whether packs are merged and indexed, two states are saved, and what was superseded before the pin is deleted."""
    catalog = await newest(bucket)
    is_complete = bool(catalog.indexes) and len(catalog.packs) < ROUNDS and len(await list_names(bucket, KEYS)) > 1
    return is_complete and await holds_only_what_is_named(bucket)


async def expected_of(connection: ClientConnection) -> dict[str, Any]:
    """What every reader must find: each queue's records, and the offsets of the group."""
    topics: dict[str, dict[str, Any]] = {}
    for topic in (*sorted({*QUEUES} - {GONE}), f"%RETRY%{GROUP}"):
        for queue_id in range(QUEUES.get(topic, 1)):
            records = await read_encoded(connection, topic, queue_id)
            (last,) = iterate_records(records[max(records)])
            topics.setdefault(topic, {})[str(queue_id)] = {
                "start": min(records),
                "end": max(records) + 1,
                "last_key": (last.keys or "").split(" ")[0],
                "sha256": sha256(b"".join(records.values())).hexdigest(),
            }
    return {"topics": topics, "group_offsets": {PLAIN: list(range(1, QUEUES[PLAIN] + 1))}}


async def write_bucket(folder: Path, cold: Path) -> dict[str, Any]:
    """Have a broker with its store in `folder` write the bucket in `cold`; return what it must be read as."""
    broker = BrokerProcess(folder, {**SETTINGS, "coldUrl": cold.as_uri()})
    bucket = await open_object_store(cold.as_uri())
    try:
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        for topic, queues in QUEUES.items():
            ttl_ms = FLEETING_TTL_MS if topic == FLEETING else None
            await wire.make_topic(connection, topic, queues=queues, ttl_ms=ttl_ms)
        await wire.make_group(connection, GROUP)
        await send_others(connection)
        for queue_id in range(QUEUES[PLAIN]):
            await wire.commit_offset(connection, GROUP, PLAIN, queue_id, queue_id + 1)
        number = 0
        while number < ROUNDS or not await has_pinned_a_state(bucket):
            await send_round(connection, number)
            if number == ROUNDS // 2:
                await wire.delete_topic(connection, GONE)
            await wire.patiently(lambda: wire.seal(connection))
            number += 1
        expected = await expected_of(connection)
        connection.close()
        await wire.until_true(lambda: is_settled(bucket))
        assert await broker.stop() == 0
        assert await holds_only_what_is_named(bucket), "the end has interrupted a commit: run this again"
        broker.check_log()
        return {**expected, "version": (await newest(bucket)).version, "written_ms": now_ms()}
    finally:
        await bucket.close()
        if broker.is_running:
            await broker.kill()


def main() -> None:
    folder = GOLDEN / VERSION
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as store:
        expected = asyncio.run(write_bucket(Path(store) / "broker", folder / "bucket"))
    shutil.rmtree(folder / "bucket" / ".partial", ignore_errors=True)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
