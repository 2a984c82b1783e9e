"""A broker comes back from the golden bucket of an earlier broker (`tests/tiered/broker_golden.py`), and goes on."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import SMALL_FILES, BrokerProcess
from tests.crash.recovery_load import read_encoded
from tests.tiered.broker_golden import FLEETING, FLEETING_TTL_MS, GOLDEN, GONE, GROUP, PLAIN, VERSION
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.headers.broker import GetTopicConfigRequestHeader
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

EXPECTED = json.loads((GOLDEN / VERSION / "expected.json").read_text())

pytestmark = pytest.mark.crash


async def check_records(connection: ClientConnection) -> None:
    """Every message that has no time to live, by offset, key, time and place; and where the group was."""
    for topic, queues in EXPECTED["topics"].items():
        for queue_id, queue in queues.items():
            records = await read_encoded(connection, topic, int(queue_id))
            if topic == FLEETING:
                assert records == {}
                continue
            earlier = {offset: record for offset, record in records.items() if offset < queue["end"]}
            assert list(earlier) == list(range(queue["start"], queue["end"]))
            assert sha256(b"".join(earlier.values())).hexdigest() == queue["sha256"]
            await check_lookups(connection, topic, int(queue_id), earlier[queue["end"] - 1], key=queue["last_key"])
    for queue_id, offset in enumerate(EXPECTED["group_offsets"][PLAIN]):
        assert await wire.consumer_offset(connection, GROUP, PLAIN, queue_id) == offset


async def check_lookups(connection: ClientConnection, topic: str, queue_id: int, encoded: bytes, *, key: str) -> None:
    """A record is found by its key, by its time and by its place."""
    (record,) = iterate_records(encoded)
    assert await wire.patiently(lambda: wire.view_body(connection, record.physical_offset)) == encoded
    if key:
        assert encoded in await wire.patiently(lambda: wire.query_key_body(connection, topic, key))
    time_ms = record.store_timestamp_ms
    found = await wire.patiently(lambda: wire.offset_by_time(connection, topic, queue_id, time_ms, "upper"))
    assert found >= record.queue_offset


async def test_a_broker_comes_back_from_it_and_goes_on(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    shutil.copytree(GOLDEN / VERSION / "bucket", cold)
    broker = BrokerProcess(tmp_path / "broker", {**SMALL_FILES, "coldUrl": cold.as_uri()})
    broker.arguments = ("--recover-from", broker.properties["coldUrl"])
    try:
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        await check_records(connection)
        config = await wire.ask(connection, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=FLEETING))
        assert json.loads(bytes(config.body))["attributes"]["thermocline.ttl.ms"] == str(FLEETING_TTL_MS)
        with pytest.raises(wire.Refused) as refused:
            await wire.ask(connection, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=GONE))
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
        end = await wire.max_offset(connection, PLAIN, 0)
        assert (await wire.send(connection, PLAIN, 0, b"behind what the earlier broker gave out")).queue_offset == end
        await wire.patiently(lambda: wire.seal(connection))
        connection.close()
        assert await broker.stop() == 0
        broker.arguments = ()
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        await check_records(connection)
        assert end in await read_encoded(connection, PLAIN, 0)
        connection.close()
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
