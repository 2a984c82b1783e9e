"""A broker with keys in its cold tier's URL: nothing that it writes, prints or answers has them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.fixtures_s3 import new_bucket
from tests.full_cases import full
from thermocline.localstack import S3Server
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.request_code import RequestCode

pytestmark = [pytest.mark.s3, pytest.mark.crash, pytest.mark.xdist_group("s3-moto")]

SECRETS = ("AKIATOPSECRET", "SECRETKEYTOPSECRET", "TOKENTOPSECRET")
KEYS = "&access_key={}&secret_key={}&session_token={}".format(*SECRETS)
MASKED = "access_key=***&secret_key=***&session_token=***"
TIMEOUT_S = 120


async def thermocline(*arguments: str) -> tuple[int, str]:
    """Run a command in a process of its own; its status, and what it wrote to both streams."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "thermocline.cli", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def check(text: str, where: str) -> None:
    for secret in SECRETS:
        assert secret not in text, f"{where}: {text}"


async def test_keys_of_a_url_are_nowhere(tmp_path: Path, s3_servers: Callable[[str], S3Server]) -> None:
    bucket = new_bucket(s3_servers("moto"))  # takes any keys
    url = re.sub(r"&access_key=.*", "", bucket.cold_url) + KEYS
    health_port = free_port()
    namesrv = f"127.0.0.1:{free_port()}"
    with (tmp_path / "dev.log").open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "thermocline.cli", "dev", "--data", str(tmp_path / "dev"), "--log-level", "DEBUG"),
            *("--namesrv", namesrv, "--listen", "127.0.0.1:0", "--cold", url, "--set", f"healthPort={health_port}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log_file,
        )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        ready = (await process.stdout.readline()).decode()
    assert ready.startswith("ready "), (tmp_path / "dev.log").read_text()
    assert ready.rstrip().endswith(MASKED)
    check(ready, "ready line")
    address = dict(part.split("=", 1) for part in ready.split()[1:])["broker"]
    try:
        connection = await ClientConnection.open(address)
        await wire.make_topic(connection, "Kept", queues=1)
        await wire.send(connection, "Kept", 0, b"body")
        assert await wire.patiently(lambda: wire.seal(connection, "Kept"))
        answer = await wire.ask(connection, RequestCode.GET_BROKER_CONFIG)
        assert MASKED in bytes(answer.body).decode()
        check(bytes(answer.body).decode(), "GET_BROKER_CONFIG")
        status = json.dumps(await wire.tier_status(connection))
        assert MASKED in status
        check(status, "tier status on the wire")
        connection.close()
        for words in (
            ("tier", "status"),
            ("tier", "status", "--json"),
            ("tier", "explain", "Kept"),
            ("tier", "cost"),
            ("broker", "config", "get", "broker-a", "--json"),
            ("broker", "runtime", "broker-a"),
        ):
            code, output = await thermocline(*words, "--namesrv", namesrv)
            assert code == 0, output
            check(output, " ".join(words))
        for path in ("health", "metrics"):
            check(await asyncio.to_thread(fetched, f"http://127.0.0.1:{health_port}/{path}"), path)
    finally:
        process.terminate()
        async with asyncio.timeout(TIMEOUT_S):
            rest = (await process.stdout.read()).decode()
            await process.wait()
    check(rest, "stdout")
    log = (tmp_path / "dev.log").read_text()
    assert "store checked" in log
    check(log, "log")


@pytest.mark.parametrize("kind", ["s3://bucket/p?what=1", *full("ftp://bucket/p?x=1", "s3:///p?x=1")])
async def test_errors_about_a_url_have_no_keys(tmp_path: Path, kind: str) -> None:
    url = kind + KEYS
    for arguments in (
        ("broker", "--data", str(tmp_path / "store"), "--listen", "127.0.0.1:0", "--cold", url),
        ("dev", "--data", str(tmp_path / "dev"), "--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--cold", url),
        ("store", "doctor", url),
        ("tier", "ls", url),
    ):
        code, output = await thermocline(*arguments)
        assert code != 0
        assert output.startswith("thermocline: "), output
        check(output, arguments[0])


async def test_a_store_that_refuses_the_keys_is_reported_without_them(
    tmp_path: Path, s3_servers: Callable[[str], S3Server]
) -> None:
    bucket = new_bucket(s3_servers("versitygw"))
    url = re.sub(r"&access_key=.*", "", bucket.cold_url) + KEYS
    code, output = await thermocline("store", "doctor", url)
    assert code == 1
    check(output, "store doctor")
    broker = BrokerProcess(tmp_path, {"coldUrl": url})
    broker.arguments = ("--log-level", "DEBUG")
    await broker.start()
    connection = await ClientConnection.open(broker.address)

    async def says_why() -> bool:
        return "refuses" in (await wire.tier_status(connection))["lastError"]

    await wire.until_true(says_why)
    check(json.dumps(await wire.tier_status(connection)), "tier status")
    connection.close()
    assert await broker.stop() == 0
    assert " DEBUG " in broker.log
    check(broker.log, "log")
