"""Decisions: what a controller answers to each request about replica sets, and the event that the answer promises.

Each method checks a request against the tables and the live table, in RocketMQ's order, and changes nothing. A decision
with an event is an answer only once that event is committed and applied.

    1001 alter          1003 register       1006 sync_states       1012 next_id
    1002 elect          1004 replica_info   1011 clean             1013 apply_id

It differs from RocketMQ where RocketMQ would lose what it keeps:
  - The first master must be a registered replica; RocketMQ records any number that asks.
  - An election that finds none before there was a first master changes nothing; RocketMQ then counts an epoch, and no
    replica can be elected any more.
  - `clean` of living brokers by their numbers forgets these; RocketMQ forgets all replicas of the name.
  - A number that a replica has is not offered to another one; RocketMQ offers it for ever, and refuses it, where one
    above the next number was given. No replica has a number below 1: 0 means a master to clients.
  - An election of a designated replica without its number fails; RocketMQ takes it for one of its own, and then has no
    master.
  - A replica is not registered with another address than that of its heartbeats, while these come: two brokers have one
    number, of a copied store for example. RocketMQ takes the newer address, and both brokers become the master.
  - A request without a cluster is about the cluster that the replicas registered with; RocketMQ then takes each of them
    for dead.
Deterministic: no clock, no random number, no I/O.
Source: controller/impl/manager/ReplicasInfoManager.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from thermocline.controller.state.election import elect
from thermocline.controller.state.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UpdateBrokerAddress,
)
from thermocline.controller.state.live_table import BrokerKey, LiveBroker, Liveness
from thermocline.controller.state.replica_sets import FIRST_BROKER_ID, Members, ReplicaSets, Sync
from thermocline.remoting.bodies import BrokerMemberGroup
from thermocline.remoting.bodies.replica import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
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

BY_CONTROLLER = -1
"""In place of a broker's number: the controller asks for the election itself, and any replica will do."""
REPLICAS_WANTED_MAX = 10_000
"""Of a requested SyncStateSet; more than a set may have by its setting."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, and the event that has to be committed before it is given."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: bytes = b""
    event: Event | None = None


class Decisions:
    """See the module."""

    def __init__(self, sets: ReplicaSets) -> None:
        self._sets = sets

    def alter(self, header: AlterSyncStateSetRequestHeader, wanted: SyncStateSet, liveness: Liveness) -> Decision:
        """1001: a master asks for another SyncStateSet."""
        answer = AlterSyncStateSetResponseHeader()

        def refuse(code: int, remark: str) -> Decision:
            return Decision(code=code, remark=remark, header=answer)

        found = self._sets.registered(header.broker_name)
        if found is None:
            return refuse(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed")
        members, sync = found
        reject = "Rejecting alter syncStateSet request because"
        if len(wanted.sync_state_set) > REPLICAS_WANTED_MAX:
            return refuse(ResponseCode.CONTROLLER_INVALID_REPLICAS, f"{reject} there are too many replicas")
        wanted_ids = sorted(set(wanted.sync_state_set))
        if wanted_ids == sync.set:
            return refuse(
                ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
                "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
            )
        if sync.master_id is None or sync.master_id != header.master_broker_id:
            present = "null" if sync.master_id is None else sync.master_id
            return refuse(
                ResponseCode.CONTROLLER_INVALID_MASTER,
                f"{reject} the current leader is:{{{present}}}, not {{{header.master_broker_id}}}",
            )
        if header.master_epoch != sync.master_epoch:
            return refuse(
                ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                f"{reject} the current master epoch is:{{{sync.master_epoch}}}, not {{{header.master_epoch}}}",
            )
        if (epoch_wanted := wanted.sync_state_set_epoch) != sync.set_epoch:
            return refuse(
                ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
                f"{reject} the current syncStateSet epoch is:{{{sync.set_epoch}}}, not {{{epoch_wanted}}}",
            )
        for broker_id in wanted_ids:
            if broker_id not in members.replicas:
                return refuse(
                    ResponseCode.CONTROLLER_INVALID_REPLICAS, f"{reject} the replicas {{{broker_id}}} don't exist"
                )
            if liveness.get(BrokerKey(members.cluster, header.broker_name, broker_id)) is None:
                return refuse(
                    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"{reject} the replicas {{{broker_id}}} don't alive"
                )
        if sync.master_id not in wanted_ids:
            return refuse(
                ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
                f"{reject} the newSyncStateSet don't contains origin leader {{{sync.master_id}}}",
            )
        epoch = sync.set_epoch + 1
        return Decision(
            header=AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=epoch),
            body=SyncStateSet(sync_state_set=wanted_ids, sync_state_set_epoch=epoch).encode(),
            event=AlterSyncStateSet(broker_name=header.broker_name, sync_state_set=tuple(wanted_ids)),
        )

    def elect(self, header: ElectMasterRequestHeader, liveness: Liveness, *, is_unclean_allowed: bool) -> Decision:
        """1002: a broker, an operator or the controller itself wants a master."""
        found = self._sets.registered(header.broker_name)
        if found is None:
            return _need_registration("Broker hasn't been registered", ElectMasterResponseHeader())
        members, sync = found
        asker = header.broker_id
        if sync.master_epoch == 0 and asker != BY_CONTROLLER:
            if asker not in members.replicas:
                return _need_registration(_unregistered(asker, header.broker_name), ElectMasterResponseHeader())
            master = asker
        else:
            elected = elect(
                lambda broker_id: _live(liveness, members, header.broker_name, broker_id),
                in_sync=sync.set,
                others=sorted(members.replicas) if is_unclean_allowed else None,
                old_master=sync.master_id,
                designated=asker if header.designate_elect else None,
            )
            if elected is None:
                return _none_elected(header, had_master=sync.master_epoch > 0)
            master = elected
        if master == sync.master_id:
            return Decision(
                code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
                remark=f"The old master {master} is still alive, not need to elect new master for broker "
                f"{header.broker_name}",
                header=_elected(members, master, sync.master_epoch, sync.set_epoch),
                body=ElectMasterResponseBody(sync_state_set=sync.set).encode(),
            )
        group = BrokerMemberGroup(
            cluster=members.cluster,
            broker_name=header.broker_name,
            broker_addrs={broker_id: replica.address for broker_id, replica in members.replicas.items()},
        )
        return Decision(
            header=_elected(members, master, sync.master_epoch + 1, sync.set_epoch + 1),
            body=ElectMasterResponseBody(broker_member_group=group, sync_state_set=[master]).encode(),
            event=ElectMaster(broker_name=header.broker_name, master_id=master),
        )

    def register(self, header: RegisterBrokerToControllerRequestHeader, liveness: Liveness) -> Decision:
        """1003: a replica that has a number says where it serves."""
        name = header.broker_name
        answer = RegisterBrokerToControllerResponseHeader(cluster_name=header.cluster_name, broker_name=name)
        found = self._sets.registered(name)
        if found is None:
            return _need_registration(f"Broker-set: {name} hasn't been registered in controller", answer)
        members, sync = found
        replica = members.replicas.get(header.broker_id)
        if replica is None:
            return _need_registration(_unregistered(header.broker_id, name), answer)
        living = _live(liveness, members, name, header.broker_id)
        if living is not None and living.address and living.address != header.broker_address:
            return Decision(
                code=ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                remark=f"BrokerId: {header.broker_id} in broker-set: {name} is alive at another address, "
                f"{living.address}",
                header=answer,
            )
        if sync.master_id is not None:
            cluster = header.cluster_name or members.cluster
            if liveness.get(BrokerKey(cluster, name, sync.master_id)) is not None:
                answer.master_broker_id = sync.master_id
                answer.master_address = members.address(sync.master_id)
                answer.master_epoch = sync.master_epoch
                answer.sync_state_set_epoch = sync.set_epoch
        has_moved = replica.address != header.broker_address
        return Decision(
            header=answer,
            body=_set_of(sync),
            event=UpdateBrokerAddress(
                broker_name=name, broker_id=header.broker_id, broker_address=header.broker_address
            )
            if has_moved
            else None,
        )

    def replica_info(self, header: GetReplicaInfoRequestHeader) -> Decision:
        """1004: the master and the SyncStateSet."""
        found = self._sets.registered(header.broker_name)
        if found is None:
            return Decision(
                code=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                remark="Broker metadata is not existed",
                header=GetReplicaInfoResponseHeader(),
            )
        members, sync = found
        return Decision(
            header=GetReplicaInfoResponseHeader(
                master_broker_id=sync.master_id,
                master_address=members.address(sync.master_id),
                master_epoch=sync.master_epoch,
            ),
            body=_set_of(sync),
        )

    def sync_states(self, broker_names: Iterable[str], liveness: Liveness) -> Decision:
        """1006: master and replicas of each name, asked once however often; those not registered are left out."""
        table = {}
        for name in dict.fromkeys(broker_names):
            found = self._sets.registered(name)
            if found is not None:
                table[name] = _replicas_info(name, *found, liveness)
        return Decision(body=BrokerReplicasInfo(replicas_info_table=table).encode())

    def clean(self, header: CleanControllerBrokerDataRequestHeader, liveness: Liveness) -> Decision:
        """1011: an operator has replicas forgotten."""
        name = header.broker_name
        found = self._sets.registered(name)
        ids_text = (header.broker_controller_ids_to_clean or "").strip()
        ids: tuple[int, ...] | None = None
        if ids_text:
            texts = ids_text.rstrip(";").split(";")
            if not all(_NUMBER.fullmatch(text) for text in texts):
                return _invalid_clean(
                    f"Please set the option <brokerControllerIdsToClean> according to the format: {ids_text}"
                )
            ids = tuple(sorted({int(text) for text in texts}))
        if not header.is_clean_living_broker:
            sync = self._sets.syncs.get(name)
            if ids is None and sync is not None and sync.master_id is not None:
                return _invalid_clean(f"Broker {name} is still alive, clean up failure")
            cluster = header.cluster_name or ("" if found is None else found[0].cluster)
            for broker_id in ids or ():
                if liveness.get(BrokerKey(cluster, name, broker_id)) is not None:
                    return _invalid_clean(f"Broker [{name},  {broker_id}] is still alive, clean up failure")
        if found is None:
            return _invalid_clean(f"Broker {name} is not existed,clean broker data failure.")
        return Decision(event=CleanBrokerData(broker_name=name, broker_ids=ids))

    def next_id(self, header: GetNextBrokerIdRequestHeader) -> Decision:
        """1012: the number that a new replica should apply for."""
        members = self._sets.members.get(header.broker_name)
        number = FIRST_BROKER_ID if members is None else members.next_id
        while members is not None and number in members.replicas:
            number += 1
        return Decision(
            header=GetNextBrokerIdResponseHeader(
                cluster_name=header.cluster_name, broker_name=header.broker_name, next_broker_id=number
            )
        )

    def apply_id(self, header: ApplyBrokerIdRequestHeader) -> Decision:
        """1013: a replica applies for a number; with its own check code it may repeat that."""
        name, broker_id = header.broker_name, header.applied_broker_id
        answer = ApplyBrokerIdResponseHeader(cluster_name=header.cluster_name, broker_name=name)
        members = self._sets.members.get(name)
        if members is None and broker_id != FIRST_BROKER_ID:
            return Decision(
                code=ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                remark=f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: "
                f"{broker_id}",
                header=answer,
            )
        holder = None if members is None else members.replicas.get(broker_id)
        is_taken = holder is not None and holder.check_code != header.register_check_code
        if is_taken or broker_id < FIRST_BROKER_ID:
            return Decision(
                code=ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                remark=f"Fail to apply brokerId: {broker_id} in broker-set: {name}",
                header=answer,
            )
        return Decision(
            header=answer,
            event=ApplyBrokerId(
                cluster_name=header.cluster_name,
                broker_name=name,
                broker_address=header.register_check_code.split(";")[0],
                broker_id=broker_id,
                check_code=header.register_check_code,
            ),
        )

    def without_living_master(self, liveness: Liveness) -> list[str]:
        """Broker names whose master is dead while another replica is alive."""
        found = []
        for name, sync in self._sets.syncs.items():
            members = self._sets.members.get(name)
            if members is None or sync.master_id is None:
                continue
            if _live(liveness, members, name, sync.master_id) is None and any(
                _live(liveness, members, name, broker_id) is not None for broker_id in members.replicas
            ):
                found.append(name)
        return found


def _none_elected(header: ElectMasterRequestHeader, *, had_master: bool) -> Decision:
    if header.broker_id == BY_CONTROLLER and not header.designate_elect:
        return Decision(
            code=ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
            remark="Old master has down and failed to elect a new broker master",
            header=ElectMasterResponseHeader(),
            event=ElectMaster(broker_name=header.broker_name, master_id=None) if had_master else None,
        )
    return Decision(
        code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
        remark="Failed to elect a new master",
        header=ElectMasterResponseHeader(),
    )


def _live(liveness: Liveness, members: Members, broker_name: str, broker_id: int) -> LiveBroker | None:
    return liveness.get(BrokerKey(members.cluster, broker_name, broker_id))


def _elected(members: Members, master: int, master_epoch: int, set_epoch: int) -> ElectMasterResponseHeader:
    return ElectMasterResponseHeader(
        master_broker_id=master,
        master_address=members.address(master),
        master_epoch=master_epoch,
        sync_state_set_epoch=set_epoch,
    )


def _set_of(sync: Sync) -> bytes:
    return SyncStateSet(sync_state_set=sync.set, sync_state_set_epoch=sync.set_epoch).encode()


def _replicas_info(name: str, members: Members, sync: Sync, liveness: Liveness) -> ReplicasInfo:
    info = ReplicasInfo(
        master_broker_id=sync.master_id,
        master_address=members.address(sync.master_id),
        master_epoch=sync.master_epoch,
        sync_state_set_epoch=sync.set_epoch,
    )
    for broker_id, replica in sorted(members.replicas.items()):
        identity = ReplicaIdentity(
            broker_name=name,
            broker_id=broker_id,
            broker_address=replica.address,
            alive=_live(liveness, members, name, broker_id) is not None,
        )
        (info.in_sync_replicas if broker_id in sync.set else info.not_in_sync_replicas).append(identity)
    return info


def _unregistered(broker_id: int, broker_name: str) -> str:
    return f"BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}"


def _need_registration(remark: str, header: Header) -> Decision:
    return Decision(code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark=remark, header=header)


def _invalid_clean(remark: str) -> Decision:
    return Decision(code=ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark=remark)
