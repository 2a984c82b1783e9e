"""Random requests to our tables of replica sets and to those of RocketMQ's own `controller` module: equal answers.

Each run begins with empty tables; brokers apply for numbers, register, die, come back, are elected and cleaned, and
masters change their SyncStateSets, most often as a broker would, else with a wrong number, epoch, name or set. Both
sides apply what they decide. The random author avoids the cases where ours differs on purpose
(controller/state/decisions.py); each of these has a test of its own below.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.official_replica_sets import OfficialReplicaSets, official_replica_sets
from thermocline.controller.state import BrokerKey, Decision, Decisions, LiveTable, Proposal, ReplicaSets
from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.header_codec import decode_header, encode_header
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.response_code import ResponseCode
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("official-access")]

CLUSTER = "DefaultCluster"
NAMES = ("broker-a", "broker-b")
STEPS = 120


@pytest.fixture(scope="module")
def official(
    official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]
) -> Iterator[OfficialReplicaSets]:
    with official_replica_sets(official_software, new_module_folder("replica-sets")) as running:
        yield running


class Ours:
    """Our tables, asked as the official ones are."""

    def __init__(self, *, unclean: bool) -> None:
        self.sets = ReplicaSets()
        self._decisions = Decisions(self.sets)
        self._live = LiveTable()
        self._unclean = unclean

    def live(self, brokers: list[dict[str, Any]]) -> None:
        self._live = LiveTable()
        for broker in brokers:
            self._live.beat(
                BrokerKey(broker["cluster"], broker["name"], broker["id"]),
                now_ms=0,
                owner=self,
                address="",
                epoch=broker["epoch"],
                max_offset=broker["offset"],
                priority=broker["priority"],
            )

    def answer(self, code: int, fields: Mapping[str, str], body: str) -> dict[str, Any]:
        decision = self._decide(code, fields, body.encode())
        if decision.event is not None:
            assert self.sets.apply(Proposal(after=self.sets.revision, event=decision.event))
        return {
            "code": int(decision.code),
            "remark": decision.remark,
            "fields": {} if decision.header is None else encode_header(decision.header),
            "body": decision.body.decode(),
        }

    def _decide(self, code: int, fields: Mapping[str, str], body: bytes) -> Decision:
        decisions, liveness = self._decisions, self._live.at(0)
        match code:
            case 1001:
                header = decode_header(AlterSyncStateSetRequestHeader, fields)
                return decisions.alter(header, SyncStateSet.decode(body), liveness)
            case 1002:
                elect = decode_header(ElectMasterRequestHeader, fields)
                return decisions.elect(elect, liveness, is_unclean_allowed=self._unclean)
            case 1003:
                return decisions.register(decode_header(RegisterBrokerToControllerRequestHeader, fields), liveness)
            case 1004:
                return decisions.replica_info(decode_header(GetReplicaInfoRequestHeader, fields))
            case 1006:
                return decisions.sync_states(json.loads(body), liveness)
            case 1011:
                return decisions.clean(decode_header(CleanControllerBrokerDataRequestHeader, fields), liveness)
            case 1012:
                return decisions.next_id(decode_header(GetNextBrokerIdRequestHeader, fields))
        return decisions.apply_id(decode_header(ApplyBrokerIdRequestHeader, fields))


class Author:
    """Writes requests from what our tables hold, and wrong ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ours = Ours(unclean=self.random.random() < 0.3)
        self.questions: list[dict[str, Any]] = [{"kind": "begin", "unclean": self.ours._unclean}]
        self.answers: list[dict[str, Any]] = [{}]

    def write(self) -> None:
        for _ in range(STEPS):
            kind = self.random.choices(
                ["live", 1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013], [10, 16, 14, 8, 5, 5, 3, 4, 12]
            )[0]
            if kind == "live":
                self._live()
            else:
                assert isinstance(kind, int)
                fields, body = self._request(kind)
                self.questions.append({"kind": str(kind), "fields": fields, "body": body})
                self.answers.append(self.ours.answer(kind, fields, body))

    def _live(self) -> None:
        brokers = [
            {
                "cluster": CLUSTER,
                "name": name,
                "id": broker_id,
                "epoch": self.random.randrange(3),
                "offset": self.random.randrange(3) * 1000,
                "priority": self.random.choice([2**31 - 1, 1, 2]),
            }
            for name in NAMES
            for broker_id in range(1, 5)
            if self.random.random() < 0.7
        ]
        self.ours.live(brokers)
        self.questions.append({"kind": "live", "brokers": brokers})
        self.answers.append({})

    def _request(self, code: int) -> tuple[dict[str, str], str]:
        name = self.random.choice(NAMES) if self.random.random() < 0.95 else "unknown"
        sync = self.ours.sets.syncs.get(name)
        fields = {"clusterName": CLUSTER, "brokerName": name, "invokeTime": "1"}
        broker_id = str(self.random.randrange(1, 5))
        match code:
            case 1001:
                present = None if sync is None or sync.master_id is None else sync
                fields["masterBrokerId"] = broker_id if self._wrong(present) else str(present.master_id)  # type: ignore[union-attr]
                fields["masterEpoch"] = "7" if self._wrong(present) else str(present.master_epoch)  # type: ignore[union-attr]
                epoch = 7 if self._wrong(present) else present.set_epoch  # type: ignore[union-attr]
                members = [one for one in range(1, 5) if self.random.random() < 0.5]
                if present is not None and self.random.random() < 0.8:
                    members = sorted({*members, present.master_id})  # type: ignore[arg-type]
                return fields, json.dumps({"syncStateSet": members, "syncStateSetEpoch": epoch})
            case 1002:
                return self._election(fields, broker_id), ""
            case 1003:
                port = self.random.choice("12")
                return {**fields, "brokerId": broker_id, "brokerAddress": f"10.0.0.{broker_id}:1091{port}"}, ""
            case 1006:
                return fields, json.dumps([*NAMES, "unknown"])
            case 1011:
                if self.random.random() < 0.7:
                    fields["brokerControllerIdsToClean"] = ";".join(
                        str(one) for one in sorted({int(broker_id), self.random.randrange(1, 5)})
                    )
                return {**fields, "isCleanLivingBroker": "false"}, ""
            case 1012:
                found = self.ours.sets.members.get(name)
                is_taken = found is not None and found.next_id in found.replicas
                return {**fields, "brokerName": "unknown" if is_taken else name}, ""
            case 1013:
                members_now = self.ours.sets.members.get(name)
                wanted = (
                    str(1 if members_now is None else members_now.next_id) if self.random.random() < 0.8 else broker_id
                )
                return {**fields, "appliedBrokerId": wanted, "registerCheckCode": f"10.0.0.{wanted}:10911;{wanted}"}, ""
        return fields, ""

    def _election(self, fields: dict[str, str], broker_id: str) -> dict[str, str]:
        sync = self.ours.sets.syncs.get(fields["brokerName"])
        members = self.ours.sets.members.get(fields["brokerName"])
        designate = self.random.random() < 0.3
        if sync is not None and sync.master_epoch == 0 and members is not None and members.replicas:
            broker_id = str(self.random.choice(sorted(members.replicas)))  # our first master has to be one of them
        elif self.random.random() < 0.4:
            broker_id, designate = "-1", False
        return {**fields, "brokerId": broker_id, "designateElect": str(designate).lower()}

    def _wrong(self, present: object) -> bool:
        return present is None or self.random.random() < 0.12


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with its body as a value; sets and lists of replicas in one order, numbers as members' names quoted."""
    answer = {"remark": None, **answer}  # Java leaves out what is null
    if not answer.get("body"):
        return answer
    body = loads_as(answer["body"].encode(), dict[str, Any])
    if isinstance(body.get("syncStateSet"), list):
        body["syncStateSet"] = sorted(body["syncStateSet"])
    if group := body.get("brokerMemberGroup"):
        group["brokerAddrs"] = {str(broker_id): address for broker_id, address in group["brokerAddrs"].items()}
    for replicas in body.get("replicasInfoTable", {}).values():
        for member in ("inSyncReplicas", "notInSyncReplicas"):
            replicas[member] = sorted(replicas[member], key=lambda replica: replica["brokerId"])
    return {**answer, "body": body}


@pytest.mark.soak
def test_answers_to_random_requests_are_those_of_rocketmq(
    official: OfficialReplicaSets, case_count: Callable[..., int]
) -> None:
    codes: set[int] = set()
    for seed in range(case_count(quick=60, full=400, soak=5_000)):
        author = Author(seed)
        author.write()
        theirs = official.ask(author.questions)
        for step, (question, our_answer, their_answer) in enumerate(
            zip(author.questions, author.answers, theirs, strict=True)
        ):
            assert comparable(our_answer) == comparable(their_answer), (seed, step, question)
            codes.add(our_answer.get("code", 0))
    assert codes >= {
        ResponseCode.SUCCESS,
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
    }


APPLY = {"appliedBrokerId": "1", "registerCheckCode": "10.0.0.1:10911;1", "clusterName": CLUSTER, "brokerName": "a"}
ELECT = {"clusterName": CLUSTER, "brokerName": "a", "designateElect": "false", "invokeTime": "1"}


def ask_both(
    official: OfficialReplicaSets, live: list[dict[str, Any]], *requests: tuple[int, dict[str, str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers to the last of some requests, ours and theirs."""
    ours = Ours(unclean=False)
    ours.live(live)
    questions: list[dict[str, Any]] = [{"kind": "begin", "unclean": False}, {"kind": "live", "brokers": live}]
    questions += [{"kind": str(code), "fields": fields, "body": ""} for code, fields in requests]
    our_answers = [ours.answer(code, fields, "") for code, fields in requests]
    return our_answers[-1], official.ask(questions)[-1]


def broker(broker_id: int, offset: int = 0) -> dict[str, Any]:
    return {"cluster": CLUSTER, "name": "a", "id": broker_id, "epoch": 1, "offset": offset, "priority": 1}


def test_only_a_registered_replica_becomes_the_first_master(official: OfficialReplicaSets) -> None:
    ours, theirs = ask_both(official, [], (1013, APPLY), (1002, {**ELECT, "brokerId": "9"}))
    assert theirs["code"] == ResponseCode.SUCCESS
    assert "masterAddress" not in theirs["fields"]
    assert ours["code"] == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def test_a_set_that_never_had_a_master_does_not_lose_its_first_election(official: OfficialReplicaSets) -> None:
    requests = ((1013, APPLY), (1002, {**ELECT, "brokerId": "-1"}), (1002, {**ELECT, "brokerId": "1"}))
    ours, theirs = ask_both(official, [broker(1)], *requests)
    assert theirs["code"] == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert (ours["code"], ours["fields"]["masterBrokerId"]) == (ResponseCode.SUCCESS, "1")


def test_living_brokers_are_cleaned_by_their_numbers_alone(official: OfficialReplicaSets) -> None:
    second = {**APPLY, "appliedBrokerId": "2", "registerCheckCode": "10.0.0.2:10911;2"}
    clean = {
        "clusterName": CLUSTER,
        "brokerName": "a",
        "brokerControllerIdsToClean": "2",
        "isCleanLivingBroker": "true",
    }
    requests = (
        (1013, APPLY),
        (1013, second),
        (1002, {**ELECT, "brokerId": "1"}),
        (1011, clean),
        (1004, {"brokerName": "a"}),
    )
    ours, theirs = ask_both(official, [broker(1), broker(2)], *requests)
    assert theirs["code"] == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    assert (ours["code"], ours["fields"]["masterBrokerId"]) == (ResponseCode.SUCCESS, "1")


def test_a_number_that_is_taken_is_not_offered(official: OfficialReplicaSets) -> None:
    third = {**APPLY, "appliedBrokerId": "3", "registerCheckCode": "10.0.0.3:10911;3"}
    second = {**APPLY, "appliedBrokerId": "2", "registerCheckCode": "10.0.0.2:10911;2"}
    next_number = {"clusterName": CLUSTER, "brokerName": "a"}
    ours, theirs = ask_both(official, [], (1013, APPLY), (1013, third), (1012, next_number))
    assert (ours["fields"]["nextBrokerId"], theirs["fields"]["nextBrokerId"]) == ("4", "3")
    ours, theirs = ask_both(official, [], (1013, APPLY), (1013, second), (1012, next_number))
    assert comparable(ours) == comparable(theirs)


def test_a_designated_replica_without_a_number_is_not_elected(official: OfficialReplicaSets) -> None:
    elect = {**ELECT, "brokerId": "-1", "designateElect": "true"}
    requests = ((1013, APPLY), (1002, {**ELECT, "brokerId": "1"}), (1002, elect), (1004, {"brokerName": "a"}))
    ours, theirs = ask_both(official, [broker(1)], *requests)
    assert ours["fields"]["masterBrokerId"] == "1"
    assert "masterBrokerId" not in theirs["fields"]


def test_of_two_logs_the_longer_one_is_elected_however_much_longer(official: OfficialReplicaSets) -> None:
    live = [broker(2, offset=0), broker(3, offset=3 << 30)]
    numbers = [
        (1013, {**APPLY, "appliedBrokerId": str(one), "registerCheckCode": f"10.0.0.{one}:10911;{one}"})
        for one in (1, 2, 3)
    ]
    everyone = [broker(one) for one in (1, 2, 3)]
    ours = Ours(unclean=False)
    questions: list[dict[str, Any]] = [{"kind": "begin", "unclean": False}]
    answers = []
    alter = {"brokerName": "a", "masterBrokerId": "1", "masterEpoch": "1", "invokeTime": "1"}
    members = json.dumps({"syncStateSet": [1, 2, 3], "syncStateSetEpoch": 1})
    for brokers, requests in (
        (everyone, [*numbers, (1002, {**ELECT, "brokerId": "1"}), (1001, alter)]),
        (live, [(1002, {**ELECT, "brokerId": "-1"})]),
    ):
        ours.live(brokers)
        questions.append({"kind": "live", "brokers": brokers})
        for code, fields in requests:
            body = members if code == 1001 else ""
            answers.append(ours.answer(code, fields, body))
            questions.append({"kind": str(code), "fields": fields, "body": body})
    theirs = official.ask(questions)[-1]
    assert theirs["fields"]["masterBrokerId"] == "2"
    assert answers[-1]["fields"]["masterBrokerId"] == "3"
