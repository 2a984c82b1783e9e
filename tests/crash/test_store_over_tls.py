"""A broker whose bucket is behind TLS, by an authority of the operator's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.fixtures_s3 import new_bucket
from thermocline.localstack import S3Server
from thermocline.remoting.clients.client import ClientConnection

pytestmark = [pytest.mark.s3, pytest.mark.crash, pytest.mark.xdist_group("s3-tls")]

TOPIC = "OverTls"


async def test_a_broker_commits_with_a_configured_authority(tmp_path: Path, tls_s3_server: S3Server) -> None:
    bucket = new_bucket(tls_s3_server)
    kept = f"&ca={tls_s3_server.authority}&sse=AES256&storage_class=REDUCED_REDUNDANCY"
    broker = BrokerProcess(tmp_path, {"coldUrl": bucket.cold_url + kept})
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, TOPIC, queues=1)
    await wire.send(connection, TOPIC, 0, b"kept")
    assert await wire.patiently(lambda: wire.seal(connection, TOPIC))
    connection.close()
    assert await broker.stop() == 0
    broker.check_log()
    client = tls_s3_server.client()
    try:
        found = {}
        for item in client.list_objects_v2(Bucket=bucket.name)["Contents"]:
            answer = client.head_object(Bucket=bucket.name, Key=item["Key"])
            assert answer["ServerSideEncryption"] == "AES256"
            found.setdefault(item["Key"].split("/")[3], set()).add(answer.get("StorageClass"))
    finally:
        client.close()
    history = {name for name in found if name in ("topics", "packs", "indexes")}
    assert history
    assert found == {name: {"REDUCED_REDUNDANCY" if name in history else None} for name in found}
    assert {"ledger", "head-hint"} <= found.keys()


async def test_a_file_of_authorities_that_is_not_there_ends_the_broker(tmp_path: Path) -> None:
    url = f"s3://bucket?endpoint=https://127.0.0.1:9&ca={tmp_path}/missing.pem"
    broker = BrokerProcess(tmp_path, {"coldUrl": url})
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    last_line = broker.log_tail().splitlines()[-1]
    assert last_line.startswith("thermocline: the file of authorities cannot be used ca=")
    assert "missing.pem reason=No such file or directory" in last_line
    assert "Traceback" not in broker.log


async def test_a_broker_that_cannot_trust_its_store_ends_with_one_sentence(
    tmp_path: Path, tls_s3_server: S3Server
) -> None:
    broker = BrokerProcess(tmp_path, {"coldUrl": new_bucket(tls_s3_server).cold_url})
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    last_line = broker.log_tail().splitlines()[-1]
    assert last_line.startswith("thermocline: the certificate of the object store is not trusted (unable to get local")
    assert "by ca= in the URL or in AWS_CA_BUNDLE" in last_line
    assert tls_s3_server.secret_key not in broker.log
    assert "Traceback" not in broker.log
