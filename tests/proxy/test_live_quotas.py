"""Quotas that change while a proxy runs: by its configuration file, which may be broken for a while."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.proxy.proxy_under_test import ProxyUnderTest, make_topics, message, proxy_before, send_request
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy.access import QuotaCheck
from thermocline.proxy.configuration import load_config
from thermocline.proxy.grpc.messages import Code
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.errors import BrokerBusyError

ONE_A_SECOND = "topic Normal sendRequests=1"


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


def write(path: Path, text: str) -> None:
    """As editors and configuration managers do: another file under the same name."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def write_settings(path: Path, **settings: Any) -> None:
    write(path, json.dumps(settings))


async def is_limited(proxy: ProxyUnderTest) -> bool:
    codes = [(await proxy.call("SendMessage", send_request(message()))).status.code for _ in range(3)]
    return Code.TOO_MANY_REQUESTS in codes


async def test_quotas_follow_the_file(broker: FakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = tmp_path / "rmq-proxy.json"
    write_settings(path, maxMessageSize=1_000_000)
    async with proxy_before(broker, quotas_file=str(path)) as proxy:
        assert not await is_limited(proxy)
        write_settings(path, maxMessageSize=1_000_000, quotas=ONE_A_SECOND)
        await until(lambda: "quotas changed" in caplog.text)
        assert await is_limited(proxy)
        for broken in ("{", '{"quotas": "topic"}', '{"quotas": "user carol sendRequests=1"}'):
            caplog.clear()
            write(path, broken)
            await until(lambda: "cannot be used, its last quotas count" in caplog.text)
            assert await is_limited(proxy)
        path.unlink()
        write_settings(path, maxMessageSize=2_000_000)
        await until(lambda: "quotas changed" in caplog.text)
        assert not await is_limited(proxy)
        assert "changed settings count at the next start: maxMessageSize" in caplog.text


async def test_a_change_between_reading_and_start_counts(broker: FakeBroker, tmp_path: Path) -> None:
    path = tmp_path / "rmq-proxy.json"
    write_settings(path, quotas="topic Normal sendRequests=1000000")
    config = load_config(config_path=path, environment={}, flags={})
    write_settings(path, quotas=ONE_A_SECOND)
    async with proxy_before(broker, quotas_file=config.quotas_file, quotas=config.quotas) as proxy:
        assert await is_limited(proxy)


def test_what_stands_above_the_file_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "rmq-proxy.json"
    write_settings(path, quotas=ONE_A_SECOND)
    followed = load_config(config_path=path, environment={}, flags={"grpcServerPort": "1"})
    assert (followed.quotas, followed.quotas_file) == (ONE_A_SECOND, str(path))
    for environment, flags in (({"THERMOCLINE_PROXY_QUOTAS": ""}, {}), ({}, {"quotas": "topic A sendRequests=1"})):
        config = load_config(config_path=path, environment=environment, flags=flags)
        assert config.quotas_file == ""
    # A proxy beside a broker gets its settings in this form.
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(followed), type=ProxyConfig) == followed


def test_a_quota_that_stays_keeps_what_was_taken() -> None:
    check = QuotaCheck(ONE_A_SECOND, clock_s=lambda: 1.0)
    place: dict[str, Any] = {"size_bytes": 1, "host": ("10.0.0.1", 1), "username": ""}
    check.check_send("Normal", **place)
    check.change(f"{ONE_A_SECOND}; topic Other sendRequests=1")
    check.check_send("Other", **place)
    for topic in ("Normal", "Other"):
        with pytest.raises(BrokerBusyError):
            check.check_send(topic, **place)
    check.change("")
    check.check_send("Normal", **place)
