"""What brokers hear of the groups whose transactions a proxy can be asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.proxy.fake_messaging import topic_queues
from tests.virtual_loop import run_virtually
from thermocline.proxy.cluster.transaction_watch import TransactionWatch
from thermocline.proxy.messaging import TopicQueues
from thermocline.remoting.bodies import HeartbeatData
from thermocline.remoting.errors import MQError, RequestTimeoutError, TopicNotFoundError, UnavailableError

A, B = "broker-a:1", "broker-b:1"


class Brokers:
    """What two brokers got, in that order, and a watch that tells them every ten seconds."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.brokers = ["broker-a", "broker-b"]
        self.failure: MQError | None = None
        self.look_ups: dict[str, MQError] = {}
        """Topics that cannot be looked up now, and why."""
        self.frozen = ""
        self.watch = TransactionWatch(
            client_id="proxy",
            period_s=10,
            groups_per_heartbeat=2,
            topic_queues=self._topic_queues,
            send_heartbeat=self._send_heartbeat,
            unregister=self._unregister,
        )

    def take_requests(self) -> list[tuple[str, str, str]]:
        requests, self.requests = self.requests, []
        return sorted(requests)

    async def _topic_queues(self, topic: str) -> TopicQueues:
        if topic in self.look_ups:
            raise self.look_ups[topic]
        return topic_queues(topic, *self.brokers)

    async def _send_heartbeat(self, address: str, body: bytes) -> None:
        for producer in HeartbeatData.decode(body).producer_data_set:
            self.requests.append(("heartbeat", address, producer.group_name))

    async def _unregister(self, address: str, group: str) -> None:
        self.requests.append(("unregister", address, group))
        if self.failure is not None:
            raise self.failure
        if address == self.frozen:
            await asyncio.sleep(3)
            raise RequestTimeoutError("no answer in time")


def run(case: Callable[[Brokers], Awaitable[None]]) -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.watch.start()
        await case(brokers)
        await brokers.watch.close()

    run_virtually(main)


def test_a_group_is_announced_at_once_then_every_period_and_unregistered_when_it_is_gone() -> None:
    async def case(brokers: Brokers) -> None:
        brokers.watch.add("G", "T")
        await asyncio.sleep(1)
        assert brokers.take_requests() == [("heartbeat", A, "G"), ("heartbeat", B, "G")]
        await asyncio.sleep(10)
        assert brokers.take_requests() == [("heartbeat", A, "G"), ("heartbeat", B, "G")]
        brokers.watch.remove("G")
        await asyncio.sleep(1)
        assert brokers.take_requests() == [("unregister", A, "G"), ("unregister", B, "G")]
        await asyncio.sleep(20)
        assert brokers.take_requests() == []

    run(case)


def test_a_broker_that_the_topic_has_left_is_told_that_the_group_has() -> None:
    async def case(brokers: Brokers) -> None:
        brokers.watch.add("G", "T")
        await asyncio.sleep(1)
        brokers.take_requests()
        brokers.brokers = ["broker-b"]
        await asyncio.sleep(10)
        assert brokers.take_requests() == [("heartbeat", B, "G"), ("unregister", A, "G")]

    run(case)


def test_a_group_whose_topic_was_deleted_is_unregistered() -> None:
    """Silent, it would have the broker close the connection of all clients."""

    async def case(brokers: Brokers) -> None:
        brokers.watch.add("G", "T")
        await asyncio.sleep(1)
        brokers.take_requests()
        brokers.look_ups["T"] = TopicNotFoundError(topic="T")
        await asyncio.sleep(10)
        assert brokers.take_requests() == [("unregister", A, "G"), ("unregister", B, "G")]
        await asyncio.sleep(10)
        assert brokers.take_requests() == []
        del brokers.look_ups["T"]
        await asyncio.sleep(10)
        assert brokers.take_requests() == [("heartbeat", A, "G"), ("heartbeat", B, "G")]

    run(case)


def test_a_group_whose_topic_cannot_be_looked_up_stays_announced_where_it_was() -> None:
    async def case(brokers: Brokers) -> None:
        brokers.watch.add("G", "T")
        await asyncio.sleep(1)
        brokers.take_requests()
        brokers.look_ups["T"] = UnavailableError("no name server")
        await asyncio.sleep(10)
        assert brokers.take_requests() == [("heartbeat", A, "G"), ("heartbeat", B, "G")]

    run(case)


def test_a_group_that_is_gone_before_it_was_announced_is_not_unregistered() -> None:
    async def case(brokers: Brokers) -> None:
        brokers.watch.add("G", "T")
        brokers.watch.remove("G")
        await asyncio.sleep(1)
        assert brokers.take_requests() == []

    run(case)


def test_a_group_that_comes_back_at_once_stays_announced() -> None:
    async def case(brokers: Brokers) -> None:
        brokers.watch.add("G", "T")
        await asyncio.sleep(1)
        brokers.take_requests()
        brokers.watch.remove("G")
        brokers.watch.add("G", "T")
        await asyncio.sleep(1)
        assert brokers.take_requests() == [("heartbeat", A, "G"), ("heartbeat", B, "G")]

    run(case)


def test_a_broker_that_is_away_does_not_keep_the_other_from_being_told() -> None:
    async def case(brokers: Brokers) -> None:
        brokers.failure = UnavailableError("away")
        for group in ("G", "H"):
            brokers.watch.add(group, "T")
        await asyncio.sleep(1)
        brokers.take_requests()
        brokers.watch.remove("G")
        await asyncio.sleep(1)
        assert brokers.take_requests() == [("unregister", A, "G"), ("unregister", B, "G")]
        await asyncio.sleep(10)
        assert brokers.take_requests() == [("heartbeat", A, "H"), ("heartbeat", B, "H")]

    run(case)


def test_groups_that_leave_a_frozen_broker_hold_up_no_heartbeat() -> None:
    async def case(brokers: Brokers) -> None:
        groups = [f"G{number}" for number in range(100)]
        for group in (*groups, "stays"):
            brokers.watch.add(group, "T")
        await asyncio.sleep(1)
        brokers.take_requests()
        brokers.frozen = A
        for group in groups:
            brokers.watch.remove(group)
        await asyncio.sleep(20)
        requests = brokers.take_requests()
        assert [each for each in requests if each[2] == "stays" and each[1] == B]
        assert len([each for each in requests if each[0] == "unregister"]) == 200

    run(case)
