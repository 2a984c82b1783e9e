"""Brokers of ours as processes under our controllers: they elect a master, and replace one that is killed or frozen.

Covers `broker/control.py`, `broker/present_log.py`.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.controlled_brokers import (
    NAME,
    TIMEOUT_S,
    WAITS_FOR_ALL,
    ControlledBrokers,
    brokers_of_one_name_server,
    controlled_brokers,
)
from tests.interop.fixtures_access_pair import ROOT, ROOT_KEY
from tests.interop.fixtures_access_pair import SETTINGS as ACCESS
from tests.interop.java_agent import JavaAgent, JavaAgentError, message_body
from tests.interop.replica_brokers import TOPIC, Load, log_bodies, wait_copied
from tests.waiting import wait_until
from thermocline.client import AdminClient, ConsumeFromWhere, Message, MQError, Producer, PullConsumer, SendStatus
from thermocline.client.admin.replica_administration import ReplicaState
from thermocline.localstack.loopback_port import LOOPBACK
from thermocline.remoting.errors import ResponseError
from thermocline.remoting.response_code import ResponseCode


def wait_read(namesrv: str, body: bytes) -> None:
    """Return when a new group that reads everything has got a message."""
    with PullConsumer(
        group="reader", namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe(TOPIC)
        seen: list[bytes] = []

        def has_come() -> bool:
            seen.extend(message.body for message in consumer.poll())
            return body in seen

        wait_until(has_come, what="the message is read")


def test_a_killed_master_is_replaced_and_comes_back(tmp_path: Path, case_count: Callable[..., int]) -> None:
    with controlled_brokers(tmp_path, controllers=3, **WAITS_FOR_ALL) as found:
        found.start(3)
        master = found.wait_for({1, 2, 3})
        assert master == 1
        found.make_topic()
        load = Load(found.namesrv)
        with load.running():
            for _ in range(case_count(quick=1, full=5, soak=100)):
                load.wait_for(50)
                others = {1, 2, 3} - {master}
                found.brokers[master].kill()
                begin_s = time.monotonic()
                found.wait_writable()
                print(f"every queue is writable after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement
                found.wait_for(others, not_master=master)
                load.wait_for(50)
                found.brokers[master].start()
                master = found.wait_for({1, 2, 3})
        found.check_logs(load.acknowledged)
        found.check()


@pytest.mark.full
def test_a_frozen_master_is_replaced_and_acknowledges_nothing_that_is_lost(tmp_path: Path) -> None:
    with controlled_brokers(tmp_path, **WAITS_FOR_ALL) as found:
        found.start(3)
        master = found.wait_for({1, 2, 3})
        found.make_topic()
        load = Load(found.namesrv)
        with load.running():
            load.wait_for(50)
            frozen = found.brokers[master]
            frozen.freeze()
            begin_s = time.monotonic()
            found.wait_writable()
            print(f"every queue is writable after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement
            next_master = found.wait_for({1, 2, 3} - {master}, not_master=master)
            load.wait_for(50)
            frozen.thaw()
            assert found.wait_for({1, 2, 3}) == next_master
            load.wait_for(50)
        found.check_logs(load.acknowledged)
        found.check()


def test_sends_and_reads_go_on_without_controllers_and_an_operator_switches(tmp_path: Path) -> None:
    with controlled_brokers(tmp_path, controllers=3, **WAITS_FOR_ALL) as found:
        found.start(2)
        found.wait_for({1, 2})
        found.make_topic()
        load = Load(found.namesrv)
        with load.running():
            load.wait_for(20)
            for name in list(found.controllers.processes):
                found.controllers.kill(name)
            load.wait_for(200)
            wait_read(found.namesrv, load.answers[0][0])
            for name in found.controllers.addresses:
                found.controllers.start(name)
            assert found.wait_for({1, 2}) == 1
            load.wait_for(20)
            begin_s = time.monotonic()
            with AdminClient(namesrv=found.namesrv) as admin:
                admin.elect_master(found.controller_addresses, cluster="DefaultCluster", broker_name=NAME, broker_id=2)
            found.wait_writable()
            print(f"every queue is writable after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement
            assert found.wait_for({1, 2}, not_master=1) == 2
            load.wait_for(20)
        found.check_logs(load.acknowledged)
        found.check()


@pytest.mark.full
def test_two_of_two_refuses_sends_with_a_frozen_slave_and_a_learner_is_never_counted(tmp_path: Path) -> None:
    promise = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "haMaxTimeSlaveNotCatchup": "2000"}
    with controlled_brokers(tmp_path, **promise) as found:
        found.start(2)
        found.wait_for({1, 2})
        learner = found.start_one(3, asyncLearner="true")
        found.make_topic()
        wait_copied(found.brokers[1].log_folder, learner.log_folder)
        assert found.members() == {1, 2}
        found.brokers[2].freeze()
        with Producer(
            group="sender", namesrv=found.namesrv, send_timeout_ms=10_000, retry_times_when_send_failed=0
        ) as producer:
            result = producer.send(Message(TOPIC, b"not acknowledged"))
            assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
            wait_until(lambda: found.members() == {1}, what="the frozen slave leaves the set")
            wait_until(
                lambda: "SyncStateSet members=[1] epoch=3" in found.brokers[1].log_text(), what="its master has it"
            )
            with pytest.raises(ResponseError, match="in-sync replicas not enough") as refused:
                producer.send(Message(TOPIC, b"on one broker alone"))
            assert refused.value.code == ResponseCode.SYSTEM_ERROR
            found.brokers[2].thaw()
            found.wait_for({1, 2})
            assert producer.send(Message(TOPIC, b"on two brokers")).status is SendStatus.SEND_OK
        wait_copied(found.brokers[1].log_folder, learner.log_folder)
        wait_copied(found.brokers[1].log_folder, found.brokers[2].log_folder)
        assert b"on one broker alone" not in log_bodies(learner.log_folder)
        assert found.members() == {1, 2}
        found.check()


@pytest.mark.full
def test_the_controller_may_be_inside_the_name_server(tmp_path: Path) -> None:
    with brokers_of_one_name_server(tmp_path, **WAITS_FOR_ALL) as found:
        found.start(2)
        assert found.wait_for({1, 2}) == 1
        found.make_topic()
        load = Load(found.namesrv)
        with load.running():
            load.wait_for(20)
            found.brokers[1].stop()
            begin_s = time.monotonic()
            found.wait_writable()
            print(f"every queue is writable after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement
            load.wait_for(20)
            found.brokers[1].start()
            assert found.wait_for({1, 2}) == 2
        found.check_logs(load.acknowledged)
        found.check()


def test_brokers_and_controllers_sign_their_requests_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_ACCESS_KEY", ROOT)
    monkeypatch.setenv("THERMOCLINE_SECRET_KEY", ROOT_KEY)
    access = {name: text for name, text in ACCESS.items() if "Provider" not in name}
    with controlled_brokers(tmp_path, access=access, **WAITS_FOR_ALL) as found:
        found.start(2)
        assert found.wait_for({1, 2}) == 1
        found.make_topic()
        found.brokers[1].kill()
        found.wait_writable()
        found.brokers[1].start()
        assert found.wait_for({1, 2}) == 2
        found.check_logs({b"probe"})
        found.check()


@pytest.mark.full
def test_a_master_that_cannot_serve_resigns_and_its_predecessor_is_elected(tmp_path: Path) -> None:
    with controlled_brokers(tmp_path, **WAITS_FOR_ALL) as found:
        found.start(2)
        found.wait_for({1, 2})
        found.make_topic()
        unfit, load = found.brokers[2], Load(found.namesrv)
        with load.running(), socket.socket() as taken:
            taken.bind((LOOPBACK, unfit.ha_port))
            taken.listen()
            load.wait_for(50)
            with AdminClient(namesrv=found.namesrv) as admin:
                admin.elect_master(found.controller_addresses, cluster="DefaultCluster", broker_name=NAME, broker_id=2)
            begin_s = time.monotonic()
            wait_until(lambda: "the broker resigns" in unfit.log_text(), what="it resigns", timeout_s=TIMEOUT_S)
            found.wait_writable()
            print(f"every queue is writable after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement
            assert found.wait_for({1, 2}) == 1
            load.wait_for(50)
        found.check_logs(load.acknowledged)


def check_states(found: ControlledBrokers) -> None:
    """What an operator sees of two brokers that have the same log, and when one of them is frozen."""

    def states(*, timeout_ms: int = 3_000) -> list[ReplicaState]:
        with AdminClient(namesrv=found.namesrv, request_timeout_ms=timeout_ms) as admin:
            return admin.replica_states(found.controller_addresses, NAME)

    wait_until(lambda: [state.lag_bytes for state in states()] == [0, 0], what="both have the log")
    first, second = states()
    assert (first.broker_id, first.is_master, first.is_in_sync, first.is_alive, first.epoch) == (1, True, True, True, 1)
    assert (second.broker_id, second.is_master, second.is_in_sync) == (2, False, True)
    assert second.address == found.brokers[2].address
    assert first.end_offset == second.end_offset
    found.brokers[2].freeze()
    silent = states(timeout_ms=500)[1]
    found.brokers[2].thaw()
    assert (silent.epoch, silent.end_offset, silent.lag_bytes) == (None, None, None)
    found.wait_for({1, 2})
    with AdminClient(namesrv=found.namesrv) as admin:
        assert admin.replica_states(found.controller_addresses, "another") == []


@pytest.mark.full
def test_planned_switches_and_stops_lose_nothing_where_sends_wait_for_no_slave(
    tmp_path: Path, case_count: Callable[..., int]
) -> None:
    """Without allAckInSyncStateSet: the master alone acknowledges, so it has to hand over."""
    with controlled_brokers(tmp_path) as found:
        found.start(2)
        found.wait_for({1, 2})
        found.make_topic()
        check_states(found)
        load = Load(found.namesrv)
        with load.running():
            for _ in range(case_count(quick=1, full=4, soak=50)):
                for master, other in ((1, 2), (2, 1)):
                    load.wait_for(50)
                    with AdminClient(namesrv=found.namesrv) as admin:
                        admin.elect_master(
                            found.controller_addresses, cluster="DefaultCluster", broker_name=NAME, broker_id=other
                        )
                    assert found.wait_for({1, 2}, not_master=master) == other
                load.wait_for(50)
                found.brokers[1].stop()
                assert found.wait_for({2}) == 2
                load.wait_for(50)
                found.brokers[1].start()
                found.wait_for({1, 2})
                found.brokers[2].stop()
                assert found.wait_for({1}) == 1
                found.brokers[2].start()
                found.wait_for({1, 2})
        found.check_logs(load.acknowledged)
        found.check()


@pytest.mark.full
def test_a_broker_whose_controllers_are_away_waits_and_can_be_stopped(tmp_path: Path) -> None:
    """A new one has no number, and is in no routes; one with a number serves reads, as far as they were confirmed."""
    with controlled_brokers(tmp_path, **WAITS_FOR_ALL) as found:
        found.start(1)
        found.wait_for({1})
        found.make_topic()
        with Producer(group="sender", namesrv=found.namesrv) as producer:
            producer.send(Message(TOPIC, b"confirmed"))
        found.controllers.kill("n0")
        found.brokers[1].stop()
        found.brokers[1].start()
        wait_read(found.namesrv, b"confirmed")
        with (
            Producer(group="sender", namesrv=found.namesrv, retry_times_when_send_failed=0) as producer,
            pytest.raises(MQError),
        ):
            producer.send(Message(TOPIC, b"without a master"))
        fresh = found.make_broker(2)
        fresh.start()
        with AdminClient(namesrv=found.namesrv) as admin:
            addresses = {one.address for one in admin.topic_route(TOPIC).brokers}
        assert fresh.address not in addresses
        fresh.stop()
        found.brokers[1].stop()
        found.check()


@pytest.mark.java
@pytest.mark.full
def test_a_master_is_killed_and_switched_under_sends_of_an_official_client(
    java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    """RocketMQ's client fetches routes every 30 s, whatever fails meanwhile, and sends again after that."""
    with controlled_brokers(tmp_path, **WAITS_FOR_ALL) as found:
        found.start(3)
        found.wait_for({1, 2, 3})
        found.make_topic()
        agent, sent = java_agent_process, set[bytes]()

        def send(start: int) -> bool:
            with contextlib.suppress(JavaAgentError):
                agent.produce(
                    kind="sync",
                    name="under-controller",
                    group="under-controller",
                    namesrv=found.namesrv,
                    topic=TOPIC,
                    prefix="java",
                    start=start,
                    count=10,
                )
                sent.update(message_body("java", start + index) for index in range(10))
                return True
            return False

        def send_many(start: int) -> None:
            begin_s = time.monotonic()
            wait_until(lambda: send(start), what="the official client sends", timeout_s=TIMEOUT_S)
            print(f"the official client sends after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement

        send_many(0)
        found.brokers[1].kill()
        send_many(1_000)
        master = found.wait_for({2, 3}, not_master=1)
        found.brokers[1].start()
        found.wait_for({1, 2, 3})
        shown = agent.admin(
            *(found.namesrv, "electMaster", "-a", found.controller_addresses),
            *("-c", "DefaultCluster", "-bn", NAME, "-b", "1"),
        )
        assert f"#BrokerMasterAddr\t{found.brokers[1].address}" in shown, shown
        assert found.wait_for({1, 2, 3}, not_master=master) == 1
        send_many(2_000)
        assert len(sent) == 30
        found.check_logs(sent)
        states = agent.admin(found.namesrv, "haStatus", "-b", found.brokers[1].address)
        assert re.search(r"#InSyncSlaveNum\s+2\b", states), states
        epochs = agent.admin(found.namesrv, "getBrokerEpoch", "-b", NAME)
        assert epochs.count("#Epoch: EpochEntry{epoch=3") == 3, epochs
        agent.call("stop_producers", namesrv=found.namesrv)
        found.check()
