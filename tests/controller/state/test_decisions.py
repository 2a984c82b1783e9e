"""Each check of a controller's requests, its order and its code.

Covers `controller/state/decisions.py`, `controller/state/replica_sets.py`, `controller/state/events.py`,
`remoting/headers/controller.py`, `remoting/bodies/replica.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from thermocline.controller.state import BrokerKey, Decision, Decisions, LiveTable, Proposal, ReplicaSets
from thermocline.controller.state.decisions import REPLICAS_WANTED_MAX
from thermocline.controller.state.events import ElectMaster
from thermocline.remoting.bodies.replica import BrokerReplicasInfo, ElectMasterResponseBody, SyncStateSet
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from thermocline.remoting.response_code import ResponseCode

CLUSTER, NAME = "c", "broker-a"


class Book:
    """Tables with their decisions; what is decided is applied."""

    def __init__(self) -> None:
        self.sets = ReplicaSets()
        self.decisions = Decisions(self.sets)
        self.live = LiveTable()

    def done(self, decision: Decision) -> Decision:
        if decision.event is not None:
            assert self.sets.apply(Proposal.decode(Proposal(after=self.sets.revision, event=decision.event).encode()))
        return decision

    def alive(self, *broker_ids: int, offset: int = 0, address: str = "") -> None:
        for broker_id in broker_ids:
            self.live.beat(
                BrokerKey(CLUSTER, NAME, broker_id), now_ms=0, owner=self, address=address, epoch=1, max_offset=offset
            )

    def dead(self) -> None:
        self.live = LiveTable()

    def apply_id(self, broker_id: int, check_code: str = "") -> Decision:
        code = check_code or f"10.0.0.{broker_id}:10911;{broker_id}"
        return self.done(
            self.decisions.apply_id(
                ApplyBrokerIdRequestHeader(
                    cluster_name=CLUSTER, broker_name=NAME, applied_broker_id=broker_id, register_check_code=code
                )
            )
        )

    def elect(self, broker_id: int = -1, *, designate: bool = False, unclean: bool = False) -> Decision:
        header = ElectMasterRequestHeader(broker_name=NAME, broker_id=broker_id, designate_elect=designate)
        return self.done(self.decisions.elect(header, self.live.at(0), is_unclean_allowed=unclean))

    def alter(
        self, members: list[int], *, master: int = 1, master_epoch: int = 1, epoch: int = 1, name: str = NAME
    ) -> Decision:
        header = AlterSyncStateSetRequestHeader(broker_name=name, master_broker_id=master, master_epoch=master_epoch)
        wanted = SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch)
        return self.done(self.decisions.alter(header, wanted, self.live.at(0)))

    def register(self, broker_id: int, address: str) -> Decision:
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=CLUSTER, broker_name=NAME, broker_id=broker_id, broker_address=address
        )
        return self.done(self.decisions.register(header, self.live.at(0)))

    def clean(self, ids: str | None = None, *, living: bool = False, cluster: str | None = CLUSTER) -> Decision:
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=NAME,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=living,
        )
        return self.done(self.decisions.clean(header, self.live.at(0)))


@pytest.fixture
def book() -> Book:
    """Three living replicas; number 1 is the master of {1, 2}."""
    book = Book()
    for broker_id in (1, 2, 3):
        book.apply_id(broker_id)
    book.alive(1, 2, 3)
    assert book.elect(1).code == ResponseCode.SUCCESS
    assert book.alter([1, 2]).code == ResponseCode.SUCCESS
    return book


def test_numbers_are_given_out_once_and_again_to_the_same_check_code() -> None:
    book = Book()
    assert book.apply_id(2).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID  # the first one is number 1
    assert book.apply_id(1, "a:1;7").code == ResponseCode.SUCCESS
    assert book.apply_id(1, "a:1;7").code == ResponseCode.SUCCESS
    assert book.apply_id(1, "a:1;8").code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    answer = book.decisions.next_id(GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=NAME)).header
    assert isinstance(answer, GetNextBrokerIdResponseHeader)
    assert answer.next_broker_id == 2
    assert book.sets.members[NAME].address(1) == "a:1"


def test_alter_is_checked_in_rocketmqs_order(book: Book) -> None:
    """Of two faults the one that is checked first decides the code."""
    failed, invalid_master = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, ResponseCode.CONTROLLER_INVALID_MASTER
    everything_wrong = {"master": 2, "master_epoch": 9, "epoch": 9}
    assert book.alter([7], name="unknown", **everything_wrong).code == failed
    assert book.alter([2, 1], **everything_wrong).code == failed  # as it is already
    assert book.alter([7], **everything_wrong).code == invalid_master
    assert book.alter([7], master_epoch=9, epoch=9).code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert book.alter([7], epoch=9).code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert book.alter([7], epoch=2).code == ResponseCode.CONTROLLER_INVALID_REPLICAS
    book.dead()
    book.alive(2)
    assert book.alter([2, 3], epoch=2).code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    assert book.alter([2], epoch=2).code == failed  # without the master
    book.alive(1, 3)
    answer = book.alter([3, 1], epoch=2)
    assert answer.header == AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=3)
    assert SyncStateSet.decode(answer.body) == SyncStateSet(sync_state_set=[1, 3], sync_state_set_epoch=3)


def test_the_first_master_is_the_one_that_asks_whatever_its_log_holds() -> None:
    book = Book()
    assert book.elect(1).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    book.apply_id(1)
    book.apply_id(2)
    book.alive(1, offset=100)
    book.alive(2)
    answer = book.elect(2)
    assert answer.header == ElectMasterResponseHeader(
        master_broker_id=2, master_address="10.0.0.2:10911", master_epoch=1, sync_state_set_epoch=1
    )
    body = ElectMasterResponseBody.decode(answer.body)
    assert body.sync_state_set == [2]
    assert body.broker_member_group is not None
    assert body.broker_member_group.broker_addrs == {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"}


def test_a_living_master_stays(book: Book) -> None:
    answer = book.elect(2)
    assert answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert answer.event is None
    assert answer.header == ElectMasterResponseHeader(
        master_broker_id=1, master_address="10.0.0.1:10911", master_epoch=1, sync_state_set_epoch=2
    )


def test_another_master_is_one_of_the_set_and_the_set_is_then_that_one(book: Book) -> None:
    book.dead()
    book.alive(3, offset=1_000)
    book.alive(2)
    answer = book.elect()
    assert answer.event == ElectMaster(broker_name=NAME, master_id=2)
    sync = book.sets.syncs[NAME]
    assert (sync.master_id, sync.master_epoch, sync.set, sync.set_epoch) == (2, 2, [2], 3)


def test_without_a_candidate_the_master_is_gone_and_the_set_stays(book: Book) -> None:
    book.dead()
    book.alive(3)
    assert book.elect(3).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert book.sets.syncs[NAME].master_id == 1
    assert book.elect().code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    sync = book.sets.syncs[NAME]
    assert (sync.master_id, sync.master_epoch, sync.set, sync.set_epoch) == (None, 2, [1, 2], 2)
    book.alive(2)
    answer = book.elect(2).header
    assert isinstance(answer, ElectMasterResponseHeader)
    assert (answer.master_broker_id, answer.master_epoch) == (2, 3)


def test_an_unclean_election_takes_a_replica_outside_the_set(book: Book) -> None:
    book.dead()
    book.alive(3)
    answer = book.elect(unclean=True).header
    assert isinstance(answer, ElectMasterResponseHeader)
    assert answer.master_broker_id == 3
    assert book.sets.syncs[NAME].set == [3]


def test_an_operator_elects_a_member_of_the_set_alone(book: Book) -> None:
    assert book.elect(3, designate=True).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert book.elect(1, designate=True).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    answer = book.elect(2, designate=True).header
    assert isinstance(answer, ElectMasterResponseHeader)
    assert answer.master_broker_id == 2


def test_a_replica_registers_its_address_and_learns_the_master_while_it_is_alive(book: Book) -> None:
    assert book.register(9, "x:1").code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    answer = book.register(2, "10.0.0.9:1")
    assert isinstance(answer.header, RegisterBrokerToControllerResponseHeader)
    assert (answer.header.master_broker_id, answer.header.master_epoch) == (1, 1)
    assert SyncStateSet.decode(answer.body).sync_state_set == [1, 2]
    assert book.sets.members[NAME].address(2) == "10.0.0.9:1"
    assert book.register(2, "10.0.0.9:1").event is None
    book.dead()
    answer = book.register(2, "10.0.0.9:1")
    assert isinstance(answer.header, RegisterBrokerToControllerResponseHeader)
    assert answer.header.master_broker_id is None


@pytest.mark.parametrize("broker_id", [0, -1])
def test_no_replica_has_a_number_below_1(book: Book, broker_id: int) -> None:
    assert book.apply_id(broker_id).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    assert book.sets.members[NAME].replicas.keys() == {1, 2, 3}


def test_a_new_replica_gets_a_number_when_the_next_one_is_taken(book: Book) -> None:
    """The master, alone in its set, is lost and cleaned: the others apply anew, from a number above 1 on."""

    def apply_for_next(check_code: str) -> int:
        header = GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=NAME)
        answer = book.decisions.next_id(header).header
        assert isinstance(answer, GetNextBrokerIdResponseHeader)
        assert answer.next_broker_id is not None
        assert book.apply_id(answer.next_broker_id, check_code).code == ResponseCode.SUCCESS
        return answer.next_broker_id

    assert book.alter([1], epoch=2).code == ResponseCode.SUCCESS
    book.dead()
    assert book.clean("1").code == ResponseCode.SUCCESS
    numbers = [apply_for_next(f"10.0.0.{count}:10911;9") for count in range(5)]
    assert len(set(numbers)) == 5
    assert book.sets.members[NAME].replicas.keys() == set(numbers)


def test_an_election_of_a_designated_replica_without_its_number_leaves_the_master(book: Book) -> None:
    """`mqadmin electMaster -b -1`."""
    assert book.elect(-1, designate=True).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert book.sets.syncs[NAME].master_id == 1


def test_a_number_has_one_living_broker(book: Book) -> None:
    """A copy of a broker's store has its number, too, and would become the master with it."""
    book.alive(2, address="10.0.0.2:10911")
    refused = book.register(2, "10.0.0.9:10911")
    assert refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    assert "10.0.0.2:10911" in (refused.remark or "")
    assert book.sets.members[NAME].address(2) == "10.0.0.2:10911"
    assert book.register(2, "10.0.0.2:10911").code == ResponseCode.SUCCESS
    book.dead()
    assert book.register(2, "10.0.0.9:10911").code == ResponseCode.SUCCESS
    assert book.sets.members[NAME].address(2) == "10.0.0.9:10911"


def test_replica_info_and_sync_states(book: Book) -> None:
    answer = book.decisions.replica_info(GetReplicaInfoRequestHeader(broker_name=NAME))
    assert answer.header == GetReplicaInfoResponseHeader(
        master_broker_id=1, master_address="10.0.0.1:10911", master_epoch=1
    )
    unknown = book.decisions.replica_info(GetReplicaInfoRequestHeader(broker_name="unknown"))
    assert unknown.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    states = book.decisions.sync_states([NAME, "unknown"], book.live.at(0))
    table = BrokerReplicasInfo.decode(states.body).replicas_info_table
    assert table.keys() == {NAME}
    assert [replica.broker_id for replica in table[NAME].in_sync_replicas] == [1, 2]
    assert [replica.broker_id for replica in table[NAME].not_in_sync_replicas] == [3]
    assert all(replica.alive for replica in table[NAME].in_sync_replicas)


def test_a_name_that_is_asked_for_often_is_looked_up_once(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame with one name a few million times kept a controller busy for 9 s and more: longer than it may lead."""
    looked_up: list[str] = []
    registered = book.sets.registered
    monkeypatch.setattr(book.sets, "registered", lambda name: (looked_up.append(name), registered(name))[1])
    book.decisions.sync_states([NAME, "unknown"] * 3, book.live.at(0))
    assert looked_up == [NAME, "unknown"]


def test_a_set_of_too_many_replicas_is_refused_before_it_is_read(book: Book) -> None:
    answer = book.alter([1] * (REPLICAS_WANTED_MAX + 1))
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REPLICAS
    assert "too many" in (answer.remark or "")


def test_living_replicas_are_cleaned_only_on_demand_and_by_number(book: Book) -> None:
    refused = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert book.clean().code == refused  # there is a master
    assert book.clean("3").code == refused  # it is alive
    assert book.clean("3", cluster=None).code == refused
    assert book.clean("3;x").code == refused
    assert book.clean("3", living=True).code == ResponseCode.SUCCESS
    assert book.sets.members[NAME].replicas.keys() == {1, 2}
    book.dead()
    assert book.clean("2;").code == ResponseCode.SUCCESS
    assert book.sets.syncs[NAME].set == [1]
    assert book.clean(living=True).code == ResponseCode.SUCCESS
    assert (book.sets.members, book.sets.syncs) == ({}, {})
    assert book.clean(living=True).code == refused


def test_masters_that_are_dead_while_another_replica_lives(book: Book) -> None:
    def found() -> list[str]:
        return book.decisions.without_living_master(book.live.at(0))

    assert found() == []
    book.dead()
    assert found() == []
    book.alive(3)
    assert found() == [NAME]
    book.elect()
    assert found() == []  # it is known that there is none


def test_a_proposal_that_was_checked_against_older_tables_changes_nothing(book: Book) -> None:
    before = book.sets.encode()
    late = Proposal(after=book.sets.revision - 1, event=ElectMaster(broker_name=NAME, master_id=3))
    assert not book.sets.apply(late)
    assert book.sets.encode() == before


def test_tables_come_back_from_their_snapshot(book: Book) -> None:
    again = ReplicaSets()
    again.restore(book.sets.encode())
    assert again.encode() == book.sets.encode()
    assert again.members[NAME].replicas[3].check_code == "10.0.0.3:10911;3"


@pytest.mark.parametrize("data", [b"", b"{}", b'{"revision": "x"}', b"\xff"])
def test_what_is_no_snapshot_or_proposal_is_refused(data: bytes) -> None:
    sets = ReplicaSets()
    with pytest.raises(CorruptDataError):
        sets.restore(data)
    with pytest.raises(CorruptDataError):
        Proposal.decode(data)
    assert sets.revision == 0


def test_a_proposal_is_json_with_the_members_that_logs_on_disk_have() -> None:
    proposal = Proposal(after=4, event=ElectMaster(broker_name=NAME, master_id=None))
    assert msgspec.json.decode(proposal.encode()) == {
        "after": 4,
        "event": {"type": "electMaster", "brokerName": NAME, "masterId": None},
    }
