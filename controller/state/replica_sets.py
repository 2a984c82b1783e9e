"""Replica sets: the replicas under each broker name and their master; the same tables on every controller.

Two tables, as RocketMQ has them: `members` (numbers, addresses, check codes of replicas) and `syncs` (master,
SyncStateSet and their epochs). A name is registered while both have it. Only `apply` changes them, by an event that
the consensus has committed; events of all controllers are applied in one order, so the tables are equal.

    members[name]  next_id       the number that the next new replica applies for, from 1
                   replicas      number -> address, check code
    syncs[name]    master_id     None: the master is gone and none could be elected
                   master_epoch  0 until the first election, then one more at each change of the master
                   set           numbers of the replicas in sync
                   set_epoch     one more at each change of the set

`revision` counts applied events. A proposal names the revision that it was checked against and does nothing when
another event was applied before it: a check is never out of date when its event is applied.
Deterministic: no clock, no random number, no I/O. Owner: the controller's event loop.
Source: controller/impl/manager/ (ReplicasInfoManager, BrokerReplicaInfo, SyncStateInfo), Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from thermocline.controller.state.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    Proposal,
    UpdateBrokerAddress,
)
from thermocline.remoting.errors import CorruptDataError

FIRST_BROKER_ID = 1


class Replica(msgspec.Struct, kw_only=True):
    """One replica. `check_code`: what it applied with; it gets its number again with the same one alone."""

    address: str
    check_code: str


class Members(msgspec.Struct, kw_only=True):
    """The replicas under one broker name."""

    cluster: str
    next_id: int = FIRST_BROKER_ID
    replicas: dict[int, Replica] = msgspec.field(default_factory=dict)

    def address(self, broker_id: int | None) -> str | None:
        """Where a replica serves; None without such a replica."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def add(self, broker_id: int, replica: Replica) -> None:
        """Give a number to a replica."""
        self.replicas[broker_id] = replica
        self.next_id += 1


class Sync(msgspec.Struct, kw_only=True):
    """The master and the SyncStateSet of one broker name."""

    cluster: str
    master_id: int | None = None
    master_epoch: int = 0
    set: list[int] = msgspec.field(default_factory=list)
    """Sorted."""
    set_epoch: int = 0

    def replace_set(self, members: Collection[int]) -> None:
        """Another SyncStateSet; its epoch rises."""
        self.set = sorted(members)
        self.set_epoch += 1

    def replace_master(self, master_id: int | None) -> None:
        """Another master, or none; the epoch rises."""
        self.master_id = master_id
        self.master_epoch += 1


class _Snapshot(msgspec.Struct, kw_only=True):
    revision: int
    members: dict[str, Members]
    syncs: dict[str, Sync]


class ReplicaSets:
    """See the module."""

    def __init__(self) -> None:
        self.revision = 0
        self.members: dict[str, Members] = {}
        self.syncs: dict[str, Sync] = {}

    def registered(self, broker_name: str) -> tuple[Members, Sync] | None:
        """Both records of a name; None unless there are both."""
        members, sync = self.members.get(broker_name), self.syncs.get(broker_name)
        return None if members is None or sync is None else (members, sync)

    def apply(self, proposal: Proposal) -> bool:
        """Apply a committed proposal; False: another event came between its check and this, and it changed nothing."""
        if proposal.after != self.revision:
            return False
        self.revision += 1
        self._apply(proposal.event)
        return True

    def encode(self) -> bytes:
        """Everything, as JSON."""
        return msgspec.json.encode(_Snapshot(revision=self.revision, members=self.members, syncs=self.syncs))

    def restore(self, data: bytes) -> None:
        """Replace everything by what `encode` gave.

        Raises:
            CorruptDataError: It did not come from `encode`; nothing changes.
        """
        try:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptDataError(f"a snapshot of replica sets cannot be read: {error}") from error
        self.revision, self.members, self.syncs = snapshot.revision, snapshot.members, snapshot.syncs

    def _apply(self, event: Event) -> None:
        match event:
            case AlterSyncStateSet():
                if (found := self.registered(event.broker_name)) is not None:
                    found[1].replace_set(event.sync_state_set)
            case ApplyBrokerId():
                self._apply_broker_id(event)
            case ElectMaster():
                if (found := self.registered(event.broker_name)) is not None:
                    found[1].replace_master(event.master_id)
                    if event.master_id is not None:
                        found[1].replace_set([event.master_id])
            case CleanBrokerData():
                self._clean(event)
            case UpdateBrokerAddress():
                members = self.members.get(event.broker_name)
                replica = None if members is None else members.replicas.get(event.broker_id)
                if replica is not None:
                    replica.address = event.broker_address

    def _apply_broker_id(self, event: ApplyBrokerId) -> None:
        replica = Replica(address=event.broker_address, check_code=event.check_code)
        found = self.registered(event.broker_name)
        if found is None:
            members = self.members[event.broker_name] = Members(cluster=event.cluster_name)
            self.syncs[event.broker_name] = Sync(cluster=event.cluster_name)
            members.add(event.broker_id, replica)
        elif event.broker_id not in found[0].replicas:
            found[0].add(event.broker_id, replica)

    def _clean(self, event: CleanBrokerData) -> None:
        if not event.broker_ids:
            self.members.pop(event.broker_name, None)
            self.syncs.pop(event.broker_name, None)
            return
        found = self.registered(event.broker_name)
        if found is None:
            return
        members, sync = found
        for broker_id in event.broker_ids:
            members.replicas.pop(broker_id, None)
        sync.set = [broker_id for broker_id in sync.set if broker_id not in event.broker_ids]
        if not members.replicas:
            del self.members[event.broker_name]
        if not sync.set:
            del self.syncs[event.broker_name]
