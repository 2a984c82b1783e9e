"""POP at a slave that stands in for its master: messages in flight at the death of the master and at its return.

Brokers and NameServer of ours as processes; our SDK, and the official push consumer.
Covers `broker/pops/escaped_pops.py` and `broker/acting/acting_pop_requests.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.acting_set import OTHER, QUEUES, TOPIC, ActingSet, acting_set, answer_to
from tests.interop.cluster import BROKER_NAME
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import name_server
from tests.interop.test_acting_master import send
from tests.waiting import wait_until
from thermocline.client import AdminClient, ConsumeFromWhere, PopConsumer, PoppedMessage
from thermocline.remoting.errors import MQError
from thermocline.remoting.handles.pop_topics import normal_topic
from thermocline.remoting.request_code import RequestCode

GROUP = "PoppingGroup"
HELD_MS = 10_000
"""Long enough for the death of the master to fall into it."""
HELD_AT_SLAVE_MS = 20_000
"""Likewise for the return of the master."""
LONG_MS = 600_000
COUNT = 10


@pytest.fixture
def acted(tmp_path: Path) -> Iterator[ActingSet]:
    """The brokers, behind a NameServer that shows acting masters."""
    settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with name_server(tmp_path / "namesrv", **settings) as namesrv, acting_set(tmp_path, namesrv) as found:
        yield found


class Popper:
    """A member of the group, with what it got, in their order."""

    def __init__(self, namesrv: str, *, in_order: bool = False) -> None:
        self.got: list[PoppedMessage] = []
        self.counts: Counter[bytes] = Counter()
        self._consumer = PopConsumer(
            group=GROUP,
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            poll_name_server_interval_ms=500,
            await_ms=1_000,
            in_order=in_order,
        )

    def __enter__(self) -> Popper:
        self._consumer.start()
        self._consumer.subscribe(TOPIC)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._consumer.close()

    def pop(self, *bodies: bytes, invisible_ms: int = LONG_MS) -> list[PoppedMessage]:
        """Pop until these have come, once more than before; what came."""
        wanted = {body: self.counts[body] + 1 for body in bodies}
        found: list[PoppedMessage] = []

        def all_came() -> bool:
            try:
                found.extend(messages := self._consumer.receive(1, invisible_ms=invisible_ms))
            except MQError:
                return False  # the master is gone, and the route does not show the slave yet
            self.counts.update(message.body for message in messages)
            return all(self.counts[body] >= count for body, count in wanted.items())

        wait_until(all_came, what=f"{bodies!r} are popped")
        return [message for message in found if message.body in bodies]

    def ack(self, *messages: PoppedMessage) -> None:
        for message in messages:
            self._consumer.ack(message)

    def keep(self, message: PoppedMessage, invisible_ms: int) -> None:
        self._consumer.change_invisible_duration(message, invisible_ms)


@pytest.mark.full
def test_nothing_that_was_popped_is_lost_by_the_death_of_the_master_and_its_return(acted: ActingSet) -> None:
    """Of the messages that the master and the slave gave out, those come back that were not acknowledged."""
    namesrv = acted.namesrv
    with Popper(namesrv) as popper:
        for body in (b"1 acked", b"1 acked at the slave", b"1 kept at the slave", b"1 held", b"2 acked", b"2 held"):
            send(namesrv, body)
        (acked,) = popper.pop(b"1 acked")
        popper.ack(acked)
        (late,) = popper.pop(b"1 acked at the slave")
        (kept,) = popper.pop(b"1 kept at the slave", invisible_ms=LONG_MS)
        popper.pop(b"1 held", invisible_ms=HELD_MS)
        acted.wait_followed()
        acted.master.kill()
        acted.wait_acting()
        (second,) = popper.pop(b"2 acked")
        popper.pop(b"2 held", invisible_ms=HELD_AT_SLAVE_MS)
        popper.ack(late, second)
        popper.keep(kept, 1_000)
        popper.pop(b"1 kept at the slave", b"1 held")
        acted.master.start()
        acted.wait_ended()
        acted.wait_followed()
        (back,) = popper.pop(b"2 held")
        assert normal_topic(back.topic, GROUP) == TOPIC
        assert back.reconsume_times == 1
        send(namesrv, b"3")
        popper.pop(b"3")
        for body in (b"1 acked", b"2 acked", b"3"):
            assert popper.counts[body] == 1, body
    assert acted.committed(acted.master, GROUP).get(0) == 7


@pytest.mark.java
@pytest.mark.full
def test_an_official_push_consumer_goes_on_by_pop_at_the_slave_and_at_the_master(
    acted: ActingSet, java_agent_process: JavaAgent
) -> None:
    agent, namesrv = java_agent_process, acted.namesrv
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_group(GROUP)
        admin.set_request_mode(GROUP, TOPIC, "POP")
    bodies = [b"message %d" % number for number in range(COUNT)]
    for number, body in enumerate(bodies):
        send(namesrv, body, queue_id=number % QUEUES)
    wait_until(
        lambda: GROUP.encode() in answer_to(acted.slave.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
        what="the slave has the mode",
    )
    acted.wait_followed()
    acted.master.kill()
    acted.wait_acting()
    agent.call(
        "start_push_consumer",
        name=GROUP,
        namesrv=namesrv,
        group=GROUP,
        topics={TOPIC: "*"},
        client_rebalance=False,
        pop_invisible_ms=10_000,
        refuse_first=1,
        retry_delay_level=0,
    )
    wait_until(lambda: agent.assigned(GROUP, TOPIC) == {(BROKER_NAME, -1), (OTHER, -1)}, what="it takes by POP")
    received = agent.received(GROUP, count=COUNT)
    assert sorted(message.body for message in received) == bodies
    assert [message.broker_name for message in received if message.reconsume_times] == [OTHER], "what was refused"
    acted.master.start()
    acted.wait_ended()
    acted.wait_followed()
    for queue_id in range(QUEUES):
        send(namesrv, b"later %d" % queue_id, queue_id=queue_id)
    later = agent.received(GROUP, count=QUEUES)
    assert sorted(message.body for message in later) == [b"later 0", b"later 1"]
    assert agent.stop_consumer(GROUP) == []
    assert acted.committed(acted.master, GROUP) == dict.fromkeys(range(QUEUES), COUNT // QUEUES + 1)
