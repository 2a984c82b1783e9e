"""Official Java consumers go on at a slave of ours that stands in, and at the master when it is back.

The NameServer is the official one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.acting_set import QUEUES, TOPIC, acting_set
from tests.interop.cluster import BROKER_NAME
from tests.interop.java_agent import JavaAgent
from tests.interop.test_acting_master import LEVEL_5_S, send
from tests.waiting import wait_until
from thermocline.client import AdminClient
from tooling.official_rocketmq import OfficialSoftware, official_namesrv

pytestmark = pytest.mark.java

COUNT = 10
GROUPS = {"concurrent": False, "ordered": True, "refusing": False}
ENDS = dict.fromkeys(range(QUEUES), COUNT // QUEUES + 1)


@pytest.mark.full
def test_java_consumers_go_on_at_the_slave_and_at_the_master(
    tmp_path: Path, official_software: OfficialSoftware, java_agent_process: JavaAgent
) -> None:
    agent = java_agent_process
    with (
        official_namesrv(
            official_software, tmp_path / "namesrv", properties={"supportActingMaster": "true"}
        ) as name_server,
        acting_set(tmp_path, name_server.address) as acted,
    ):
        namesrv = name_server.address
        with AdminClient(namesrv=namesrv) as admin:
            for group in GROUPS:
                admin.create_group(group)
        bodies = [f"message {number}".encode() for number in range(COUNT)]
        for number, body in enumerate(bodies):
            send(namesrv, body, queue_id=number % QUEUES)
        send(namesrv, b"delayed", delay_level=LEVEL_5_S)
        acted.wait_followed()
        acted.master.kill()
        acted.wait_acting()
        for group, is_ordered in GROUPS.items():
            agent.call(
                "start_push_consumer",
                name=group,
                namesrv=namesrv,
                group=group,
                topics={TOPIC: "*"},
                orderly=is_ordered,
                refuse_first=int(group == "refusing"),
            )
        received = {group: agent.received(group, count=COUNT + 1) for group in GROUPS}
        for group in GROUPS:
            assert sorted(message.body for message in received[group]) == sorted([*bodies, b"delayed"])
            (delayed,) = [message for message in received[group] if message.body == b"delayed"]
            assert delayed.broker_name == "broker-b"
        # What is refused cannot go back to the slave: the client sends it to the other broker's retry topic.
        assert [message.broker_name for message in received["refusing"] if message.reconsume_times] == ["broker-b"]
        in_order = [message.body for message in received["ordered"] if message.broker_name == BROKER_NAME]
        for queue_id in range(QUEUES):
            of_queue = bodies[queue_id::QUEUES]
            assert [body for body in in_order if body in of_queue] == of_queue
        acted.master.start()
        acted.wait_followed()
        for queue_id in range(QUEUES):
            send(namesrv, b"later %d" % queue_id, queue_id=queue_id)
        for group in GROUPS:
            later = agent.received(group, count=QUEUES)
            assert sorted(message.body for message in later) == [b"later 0", b"later 1"]
            assert agent.stop_consumer(group) == []
            wait_until(
                lambda group=group: acted.committed(acted.master, group) == ENDS, what="offsets are at the master"
            )
