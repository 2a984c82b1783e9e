"""Three controllers as processes: a leader killed, a leader frozen, a majority gone, all killed at once.

After each of them what was answered is there, on whichever node leads, and the node that was away has caught up.
Covers `controller/main.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controller.controller_group import ControllerGroup, controller_group
from tests.waiting import wait_until
from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, ResponseError
from thermocline.remoting.headers.controller import ApplyBrokerIdRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

pytestmark = pytest.mark.crash

CLUSTER = "c"


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerGroup]:
    with controller_group(tmp_path_factory.mktemp("controllers"), size=3) as running:
        yield running


def register(group: ControllerGroup, name: str, broker_name: str) -> None:
    """Have a node record a replica.

    Raises:
        MQError: It does not lead, or no majority has it.
    """
    header = ApplyBrokerIdRequestHeader(
        cluster_name=CLUSTER, broker_name=broker_name, applied_broker_id=1, register_check_code="127.0.0.1:1;1"
    )
    with AdminClient(namesrv=group.addresses[name], request_timeout_ms=6_000) as admin:
        admin.invoke(group.addresses[name], RemotingCommand.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header))


def is_known(group: ControllerGroup, name: str, broker_names: set[str]) -> bool:
    status = group.status(name)
    return status is not None and status.replica_sets.keys() >= broker_names


def test_a_follower_says_who_leads_and_changes_nothing(group: ControllerGroup) -> None:
    leader = group.leader()
    follower = next(name for name in group.addresses if name != leader)
    with pytest.raises(ResponseError) as refusal:
        register(group, follower, "refused")
    assert refusal.value.code == ResponseCode.CONTROLLER_NOT_LEADER
    with AdminClient(namesrv=group.text) as admin:
        wait_until(
            lambda: {one.leader for one in admin.controller_metadata(group.text).values()} == {leader},
            what="all follow the leader",
        )
        found = admin.controller_metadata(group.text)
        assert [one.is_leader for address, one in found.items()].count(True) == 1
        assert admin.replica_sets(group.addresses[follower], ["refused"]) == {}


def test_a_killed_leader_is_replaced_and_comes_back_as_a_follower_that_has_everything(group: ControllerGroup) -> None:
    leader = group.leader()
    register(group, leader, "before-the-kill")
    group.kill(leader)
    second = group.leader()
    assert is_known(group, second, {"before-the-kill"})
    register(group, second, "after-the-kill")
    group.start(leader)
    wait_until(
        lambda: is_known(group, leader, {"before-the-kill", "after-the-kill"}), what="the killed node has caught up"
    )


def test_a_frozen_leader_leads_no_more_when_it_goes_on(group: ControllerGroup) -> None:
    frozen = group.leader()
    term = group.status(frozen).term  # type: ignore[union-attr]
    group.freeze(frozen)
    second = group.leader(other_than=frozen)
    register(group, second, "while-frozen")
    group.thaw(frozen)
    with pytest.raises(ResponseError) as refusal:
        register(group, frozen, "by-the-old-leader")
    assert refusal.value.code == ResponseCode.CONTROLLER_NOT_LEADER
    wait_until(lambda: is_known(group, frozen, {"while-frozen"}), what="the frozen node has caught up")
    status = group.status(frozen)
    assert status is not None
    assert status.term > term
    assert "by-the-old-leader" not in status.replica_sets


def test_without_a_majority_nothing_is_acknowledged(group: ControllerGroup) -> None:
    leader = group.leader()
    others = [name for name in group.addresses if name != leader]
    for name in others:
        group.freeze(name)
    with pytest.raises(MQError):
        register(group, leader, "without-a-majority")
    wait_until(lambda: not group.status(leader).is_leader, what="it leads no more")  # type: ignore[union-attr]
    for name in others:
        group.thaw(name)
    again = group.leader()
    register(group, again, "with-a-majority")
    for name in group.addresses:
        wait_until(lambda name=name: is_known(group, name, {"with-a-majority"}), what=f"{name} has caught up")


def test_all_killed_at_once_have_everything_again(group: ControllerGroup) -> None:
    register(group, group.leader(), "before-the-end")
    for name in list(group.processes):
        group.kill(name)
    for name in group.addresses:
        group.start(name)
    leader = group.leader()
    assert is_known(group, leader, {"before-the-end"})
    register(group, leader, "after-the-end")
