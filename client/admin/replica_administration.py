"""Replicas: how far each broker of a replica set is, by what the controllers and the brokers themselves say.

Works with brokers of Thermocline and of Apache RocketMQ under the controllers of either.
"""

from __future__ import annotations

import asyncio

import msgspec

from thermocline.client.admin.controller_administration import ControllerAdministration
from thermocline.remoting.bodies.replica import EpochEntryCache, ReplicaIdentity
from thermocline.remoting.errors import MQError
from thermocline.remoting.request_code import RequestCode

__all__ = ["ReplicaAdministration", "ReplicaState"]


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a set. What the broker itself tells is None where it does not answer."""

    broker_name: str
    broker_id: int
    """The controllers' number of it."""
    address: str
    is_master: bool
    is_in_sync: bool
    is_alive: bool
    """Whether its heartbeats come to the controller that leads."""
    epoch: int | None
    """The newest of its log."""
    end_offset: int | None
    """Physical offset at which its log ends."""
    lag_bytes: int | None
    """What its log lacks of the master's; None also where the master does not answer."""


class ReplicaAdministration(ControllerAdministration):
    """Part of `AsyncAdminClient`."""

    async def replica_states(self, controllers: str, broker_name: str) -> list[ReplicaState]:
        """Return the state of each broker of a name, by its number; none for a name that no controller has.

        Raises:
            UnavailableError: No controller leads.
        """
        info = (await self.replica_sets(controllers, [broker_name])).get(broker_name)
        if info is None:
            return []
        replicas = sorted((*info.in_sync_replicas, *info.not_in_sync_replicas), key=lambda each: each.broker_id)
        epochs = await asyncio.gather(*(self._epochs_of(replica) for replica in replicas))
        by_id = {replica.broker_id: found for replica, found in zip(replicas, epochs, strict=True)}
        master = None if info.master_broker_id is None else by_id.get(info.master_broker_id)
        in_sync = {replica.broker_id for replica in info.in_sync_replicas}
        return [
            ReplicaState(
                broker_name=broker_name,
                broker_id=replica.broker_id,
                address=replica.broker_address or "",
                is_master=replica.broker_id == info.master_broker_id,
                is_in_sync=replica.broker_id in in_sync,
                is_alive=bool(replica.alive),
                epoch=None if found is None else max((entry.epoch for entry in found.epoch_list), default=0),
                end_offset=None if found is None else found.max_offset,
                lag_bytes=None if found is None or master is None else max(0, master.max_offset - found.max_offset),
            )
            for replica, found in zip(replicas, epochs, strict=True)
        ]

    async def _epochs_of(self, replica: ReplicaIdentity) -> EpochEntryCache | None:
        if not replica.broker_address:
            return None
        try:
            answer = await self._running().call(replica.broker_address, RequestCode.GET_BROKER_EPOCH_CACHE)
        except MQError:
            return None
        return EpochEntryCache.decode(answer.body)
