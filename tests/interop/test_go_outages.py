"""The official Go client with two brokers, one of which goes away: sends go on, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.interop.cluster import thermocline_broker, thermocline_daemons
from tests.interop.go_agent import GoAgent
from tests.interop.go_driver import GoCluster, GoDriver, check_exact
from tests.waiting import wait_until
from thermocline.client import AdminClient

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]


def test_sends_go_on_when_one_of_two_brokers_is_away(
    go_agent_process: GoAgent, go_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The Go client does not send again what a busy broker refuses, and this machine may be busy.
    monkeypatch.setenv("THERMOCLINE_WAIT_TIME_MILLS_IN_SEND_QUEUE", "10000")
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(thermocline_daemons(tmp_path / "a")).namesrv
        admin = stack.enter_context(AdminClient(namesrv=namesrv))
        cluster = GoCluster(namesrv=namesrv, agent=go_agent_process, admin=admin)
        go = stack.enter_context(contextlib.closing(GoDriver(cluster, go_name)))
        with thermocline_broker(tmp_path / "b", name="broker-b", namesrv=namesrv) as second:
            wait_until(lambda: len(admin.cluster_info()) == 2, what="both brokers are known")
            # One queue each, so that a second try goes to the other one.
            go.make_topic(queue_nums=1)
            wait_until(lambda: go.broker_count() == 2, what="both have the topic")
            answers = go.produce(count=20)
            assert {answer.broker_name for answer in answers} == {"broker-a", "broker-b"}
            second.kill()
        answers = go.produce(count=20, start=20)
        assert {(answer.status, answer.broker_name) for answer in answers} == {("SEND_OK", "broker-a")}
        stack.enter_context(thermocline_broker(tmp_path / "b", name="broker-b", namesrv=namesrv))
        wait_until(lambda: go.broker_count() == 2, what="it is back with the topic")
        check_exact(go.received(go.push(), count=40), go.topic, range(40))
