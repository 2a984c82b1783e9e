"""POPs that choose messages by an SQL92 expression: what they find, at once and later, waiting, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import INVISIBLE_MS, TOPIC, PopClient, bodies, popped
from tests.broker.pulling import expire_local_files
from thermocline.broker.pops import pop_finder
from thermocline.broker.settings.broker_config import BrokerConfig

CONFIG = BrokerConfig(listen_host="127.0.0.1", property_filter=True)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], config=CONFIG, start=False) as broker:
        yield broker


@pytest.fixture(params=["at once", "later"])
def pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that are done in time, and searches that never are."""
    monkeypatch.setattr(pop_finder, "SEARCH_S", 60.0 if request.param == "at once" else -1.0)


def by_sql(expression: str, **fields: Any) -> dict[str, Any]:
    return {"exp": expression, "expType": "SQL92", **fields}


def send_prices(client: PopClient, *prices: int, **fields: Any) -> None:
    for price in prices:
        client.send(b"%d" % price, price=str(price), **fields)


@pytest.mark.usefixtures("pace")
async def test_only_messages_that_match(broker: DataBroker) -> None:
    client = PopClient(broker)
    for queue_id in range(4):
        send_prices(client, *range(10 * queue_id, 10 * queue_id + 10), queue_id=queue_id)
    found: list[bytes] = []
    for _ in range(4):
        found += bodies(await client.pop_later(**by_sql("price BETWEEN 8 AND 12 OR price = 39")))
    assert sorted(found, key=int) == [b"8", b"9", b"10", b"11", b"12", b"39"]
    # What was looked at and not wanted is behind the group.
    assert await client.pop_later(**by_sql("price >= 0")) == []


@pytest.mark.usefixtures("pace")
async def test_redelivered_messages_are_filtered_too(broker: DataBroker) -> None:
    client = PopClient(broker)
    send_prices(client, 1, 2)
    assert bodies(await client.pop_later(**by_sql("price = 2"))) == [b"2"]
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()
    assert bodies(await client.pop_later(**by_sql("price = 2"))) == [b"2"]


async def test_a_pop_waits_on_when_new_messages_do_not_match(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_finder, "SEARCH_S", 60.0)
    client = PopClient(broker)
    await broker.parts.tables.filters.compile_in_turn("price > 5")
    opaque = client.ask_pop(pollTime=15_000, **by_sql("price > 5"))
    send_prices(client, 3)
    await asyncio.sleep(0)
    assert len(broker.pop.polling) == 1
    send_prices(client, 7)
    assert bodies(popped(await client.wait_answer(opaque))) == [b"7"]


async def test_a_client_that_leaves_while_its_expression_is_compiled_takes_nothing(broker: DataBroker) -> None:
    """Else the messages would come to the others after its invisible time only."""
    leaver, other = PopClient(broker), PopClient(broker)
    send_prices(other, 7)
    leaver.ask_pop(pollTime=15_000, **by_sql("price > 5"))
    leaver.ask_pop(pollTime=15_000, **by_sql("price > 50"))
    leaver.wire.connection.close()
    leaver.wire.lose()
    await leaver.wire.connection.wait_requests()
    assert (len(broker.parts.pops.store.in_flight), len(broker.pop.polling)) == (0, 0)
    assert bodies(await other.pop_later(**by_sql("price > 5"))) == [b"7"]


async def test_a_pop_that_waited_asks_again_for_a_long_search(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_finder, "SEARCH_S", -1.0)
    client = PopClient(broker)
    opaque = client.ask_pop(pollTime=15_000, **by_sql("price > 5"))
    await broker.parts.tables.filters.compile_in_turn("price > 5")
    await asyncio.sleep(0)
    assert len(broker.pop.polling) == 1
    send_prices(client, 3, 7)
    assert (await client.wait_answer(opaque)).code == 210
    assert bodies(await client.pop_later(**by_sql("price > 5"))) == [b"7"]


async def test_from_the_cold_tier(tmp_path: Path) -> None:
    cold = MemoryColdTier()
    async with data_broker(
        tmp_path, topics=[TOPIC], config=CONFIG, start=False, cold=cold, log_file_bytes=8 * 1024
    ) as broker:
        client = PopClient(broker)
        send_prices(client, *range(100))
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        expire_local_files(broker, 60)
        await client.pop_later(maxMsgNums=1, **by_sql("price >= 0"))
        assert cold.pulls[-1].expression == "price >= 0"


async def test_while_a_search_goes_on_its_queue_is_busy(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_finder, "SEARCH_S", -1.0)
    first, second = PopClient(broker), PopClient(broker)
    send_prices(first, *range(5))
    await broker.parts.tables.filters.compile_in_turn("price >= 0")
    turns = broker.parts.tables.turns
    turns._clock_s, turns._turn_s = (lambda: 0.0), 0.0  # one message a turn
    opaque = first.ask_pop(**by_sql("price >= 0"))
    await asyncio.sleep(0)
    assert second.pop() == []
    assert bodies(popped(await first.wait_answer(opaque))) == [b"0", b"1", b"2", b"3", b"4"]


async def test_refusals(broker: DataBroker) -> None:
    client = PopClient(broker)
    for expression_type, expression, code in (("SQL92", "price >", 23), ("XPATH", "//price", 23)):
        opaque = client.ask_pop(exp=expression, expType=expression_type)
        assert (await client.wait_answer(opaque)).code == code
    send_prices(client, 1, 2)
    await broker.parts.tables.filters.compile_in_turn("price = 1")
    broker.parts.tables.turns._jobs_max = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pop_finder, "SEARCH_S", -1.0)
        opaque = client.ask_pop(**by_sql("price = 1"))
        assert (await client.wait_answer(opaque)).code == 2
    broker.change_config(property_filter=False)
    answer = client.pop_answer(**by_sql("price = 1"))
    assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by SQL92")
