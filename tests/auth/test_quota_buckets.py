"""Quotas: tokens, names, what stays when the setting changes; and sends, pulls and POPs that are refused.

Covers `auth/quota_texts.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from thermocline.auth.quota_buckets import OTHERS_MAX, QuotaBuckets, QuotaTable
from thermocline.auth.quota_texts import Quota, format_quotas, parse_quotas
from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError
from thermocline.remoting.records.message_record import encode_host
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.socket_address import Host

HOST: Host = ("10.0.0.1", 5)
PEER = encode_host(HOST)


class Table:
    """A quota table with a clock that is moved."""

    def __init__(self, text: str) -> None:
        self.now_s = 50.0
        self.config = BrokerConfig(quotas=text)
        self.table = QuotaTable(text=lambda: self.config.quotas, clock=lambda: self.now_s)

    def set(self, text: str) -> None:
        self.config = dataclasses.replace(self.config, quotas=text)

    @property
    def buckets(self) -> QuotaBuckets:
        found = self.table.current()
        assert found is not None
        return found

    def sends(self, count: int, *, topic: str = "T", group: str = "G", peer: bytes = PEER, size_bytes: int = 10) -> int:
        """How many of these sends pass."""
        return sum(self.buckets.take_send(topic, group, peer, size_bytes) for _ in range(count))


def test_a_text_and_its_quotas() -> None:
    text = "topic A sendBytes=1000 burstSeconds=5;  address 2001:db8::7 readRequests=3; group * readBytes=9;"
    quotas = parse_quotas(text)
    assert quotas == {
        ("topic", "A"): Quota(send_bytes=1_000, burst_seconds=5),
        ("address", "2001:db8::/64"): Quota(read_requests=3),
        ("group", "*"): Quota(read_bytes=9),
    }
    shown = "topic A sendBytes=1000 burstSeconds=5; group * readBytes=9; address 2001:db8::/64 readRequests=3"
    assert format_quotas(quotas) == shown
    assert parse_quotas(shown) == quotas
    assert parse_quotas("") == parse_quotas(" ; ") == {}


@pytest.mark.parametrize(
    "text",
    [
        "topic A",
        "client A sendBytes=1",
        "topic A sendBytes=0",
        "topic A sendBytes=-1",
        "topic A sendBytes=1.5",
        "topic A sendBytes",
        "topic A burstSeconds=5",
        "topic A bytes=5",
        "topic A sendBytes=1; topic A readBytes=1",
        "address here sendBytes=1",
        "address 10.0.0.0/8 sendBytes=1",
        "topic A=B sendBytes=1",
        "topic A burstSeconds=3601 sendBytes=1",
        f"topic A sendBytes={1 << 60}",
        ";".join(f"topic T{number} sendBytes=1" for number in range(10_001)),
    ],
)
def test_a_text_that_is_none_is_refused_by_the_setting(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        BrokerConfig(quotas=text)


def test_without_quotas_there_is_nothing_to_ask() -> None:
    table = Table("")
    assert table.table.current() is None
    table.set("topic T sendRequests=1")
    assert table.table.current() is table.table.current() is not None
    table.set("")
    assert table.table.current() is None


def test_requests_and_their_burst() -> None:
    table = Table("topic T sendRequests=10 burstSeconds=3")
    assert table.sends(100) == 30
    assert table.sends(100, topic="Other") == 100
    table.now_s += 0.5
    assert table.sends(100) == 5
    table.now_s += 1_000
    assert table.sends(100) == 30


def test_bytes_are_owed() -> None:
    """A message larger than the bucket passes, and the next ones wait until it is paid: the rate is kept."""
    table = Table("topic T sendBytes=100")
    assert table.sends(2, size_bytes=1_000) == 1
    passed_bytes = 1_000
    for _ in range(1_000):
        table.now_s += 0.1
        passed_bytes += 50 * table.sends(20, size_bytes=50)
    assert 100 * 100 <= passed_bytes <= 100 * 100 + 100 + 50


def test_every_bucket_that_counts_has_something_left_or_none_is_taken() -> None:
    table = Table("topic T sendRequests=5; group G sendRequests=3; address 10.0.0.1 sendRequests=100")
    assert table.sends(10) == 3
    assert table.sends(10, group="Other") == 2
    table.buckets.return_send("T", "G", PEER, 10)
    assert table.sends(10) == 1
    with pytest.raises(BrokerBusyError, match=r"\[QUOTA\]system busy, the quota of topic T is used up"):
        table.buckets.check_send("T", "Other", PEER, 10)
    assert table.table.refusals == {("topic", "T"): 1}


def test_each_name_by_itself() -> None:
    table = Table("address * sendRequests=2; address 10.0.0.2 sendRequests=5")
    hosts: dict[str, int] = {"10.0.0.1": 2, "10.0.0.2": 5, "10.0.0.3": 2, "2001:db8::1": 2}
    for host, passing in hosts.items():
        assert table.sends(9, peer=encode_host((host, 7))) == passing, host
    assert table.sends(9, peer=encode_host(("2001:db8::2", 9))) == 0, "the same network"
    assert table.sends(9, peer=encode_host(("10.0.0.1", 8))) == 0, "another port"


def test_names_that_a_client_invents_are_bounded() -> None:
    """Idle ones go; when none is idle, further ones share a bucket."""
    table = Table("group * sendRequests=1 burstSeconds=10; group Known sendRequests=1")
    assert sum(table.sends(1, group=f"G{number}") for number in range(OTHERS_MAX - 1)) == OTHERS_MAX - 1
    assert table.sends(20, group="OneMore") == 10
    assert table.sends(20, group="Another") == 0
    assert len(table.buckets._groups.accounts) == OTHERS_MAX
    table.now_s += 60
    assert table.sends(20, group="Another") == 10
    assert list(table.buckets._groups.accounts) == ["Known", "Another"]


def test_names_that_none_can_have_share_a_bucket_and_are_not_kept() -> None:
    """A request is counted before its names are checked."""
    table = Table("group * sendRequests=10")
    for number in range(3):
        assert table.sends(20, group="x" * 10_000 + str(number)) == (0 if number else 10)
    for number in range(3):
        table.buckets.take_send("x" * 10_000 + str(number), "G", PEER, 1)
    assert list(table.buckets._groups.accounts) == ["G"]
    assert not table.buckets._topics.accounts
    assert all(len(topic) + len(group) < 1_000 for topic, group, _, _ in table.buckets._of_sends)


def test_a_change_keeps_the_buckets_of_quotas_that_stay() -> None:
    table = Table("topic T sendRequests=3; topic * sendRequests=2; topic U sendRequests=4")
    assert (table.sends(9), table.sends(9, topic="V"), table.sends(9, topic="U")) == (3, 2, 4)
    table.set("topic T sendRequests=3; topic * sendRequests=2; topic U sendRequests=5; group * sendRequests=100")
    assert (table.sends(9), table.sends(9, topic="V"), table.sends(9, topic="U")) == (0, 0, 5)
    table.set("topic V sendRequests=7")
    assert (table.sends(9), table.sends(9, topic="V")) == (9, 7)


def test_reads_are_counted_when_they_are_answered() -> None:
    table = Table("group G readRequests=2 readBytes=100")
    buckets = table.buckets
    buckets.check_read("T", "G", PEER)
    buckets.took("T", "G", PEER, requests=1, size_bytes=300)
    with pytest.raises(BrokerBusyError, match="the quota of group G"):
        buckets.check_read("T", "G", PEER)
    assert table.sends(5) == 5, "sends have buckets of their own"
    table.now_s += 3
    buckets.check_read("T", "G", PEER)


# -- in a broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    """Its quotas see no time pass: on a slow machine, too, a bucket that is empty stays so."""
    async with data_broker(tmp_path, topics=["T"]) as broker:
        broker.parts.tables.quotas._clock = lambda: 50.0
        yield broker


def send(number: int = 0, *, topic: str = "T") -> RemotingCommand:
    """A common send: its JSON header begins with the code, so the fast path takes it."""
    fields = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": f"UNIQ_KEY\x01{number:032X}\x02",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "maxReconsumeTimes": "0",
        "batch": "false",
    }
    return RemotingCommand.request(10, ext_fields=fields, body=b"x" * 100)


def read(code: int, broker: DataBroker) -> RemotingCommand:
    pull = {"queueId": "0", "queueOffset": "0", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
    pop = {"queueId": "-1", "invisibleTime": "60000", "pollTime": "0", "initMode": "0", "exp": "*", "expType": "TAG"}
    fields = {"consumerGroup": "C", "topic": "T", "maxMsgNums": "1", "subscription": "*", "subVersion": "0"}
    return RemotingCommand.request(
        code, ext_fields=fields | (pull if code == 11 else pop | {"bornTime": str(broker.clock())})
    )


async def test_sends_beyond_a_quota_are_busy(broker: DataBroker) -> None:
    """On the fast path, many in a chunk. Upon SYSTEM_BUSY official producers try again; what is refused is not
    stored."""
    await broker.ask(send())
    stored = len(broker.records())
    broker.change_config(quotas="topic T sendRequests=5 burstSeconds=1")
    connection = await broker.connect()
    answers = await asyncio.gather(*(broker.ask(send(number), connection) for number in range(20)))
    codes = [answer.code for answer in answers]
    assert codes == [0] * 5 + [ResponseCode.SYSTEM_BUSY] * 15
    busy = next(answer for answer in answers if answer.code)
    assert busy.remark is not None
    assert busy.remark.startswith("[QUOTA]system busy, the quota of topic T is used up")
    assert len(broker.records()) == stored + codes.count(0)
    assert broker.parts.tables.quotas.refusals[("topic", "T")] == 20 - codes.count(0)
    broker.change_config(quotas="")
    assert (await broker.ask(send(99), connection)).code == 0


@pytest.mark.parametrize("code", [11, 200050], ids=["pull", "pop"])
async def test_reads_beyond_a_quota_are_busy(broker: DataBroker, code: int) -> None:
    for number in range(5):
        await broker.ask(send(number))
    broker.change_config(quotas="group C readBytes=150 burstSeconds=1")
    answers = [await broker.ask(read(code, broker)) for _ in range(3)]
    assert [answer.code for answer in answers] == [0, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
    assert broker.parts.tables.quotas.refusals == {("group", "C"): 2}
    broker.change_config(quotas="address * readRequests=1")
    assert [(await broker.ask(read(code, broker))).code for _ in range(2)] == [0, ResponseCode.SYSTEM_BUSY]


async def test_with_a_quota_that_is_not_reached_the_fast_path_takes_sends(broker: DataBroker) -> None:
    await broker.ask(send())
    broker.change_config(quotas="topic * sendRequests=100000; group P sendBytes=1000000; address * sendBytes=1000000")
    connection = await broker.connect()
    slow: list[RemotingCommand] = []
    broker.dispatcher._handlers[10] = lambda _connection, command: slow.append(command)  # type: ignore[func-returns-value]
    answers = [connection.start_call(send(number), timeout_ms=10_000) for number in range(50)]
    assert {answer.code for answer in await asyncio.gather(*answers)} == {0}
    assert not slow
    buckets = broker.parts.tables.quotas.current()
    assert buckets is not None
    (account,) = buckets._groups.accounts.values()
    (_requests, bytes_) = account.send
    assert bytes_ is not None
    assert bytes_.full_s > 0, "they were counted"
