"""Replica role: what a controller makes of a broker, and how a running broker is told to change to it.

Source: broker/controller/ReplicasManager.java (changeToMaster, changeToSlave), Apache RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRole:
    """One broker's role in one epoch of its set."""

    broker_id: int
    """0: master; otherwise the id that the controller gave."""
    master_epoch: int
    sync_state_set_epoch: int
    master_broker_id: int | None
    """The controller's id of the master; None: no master now."""
    master_address: str
    """Remoting address of the master, "" when there is none or it is this broker."""
    master_ha_address: str
    """Address of the master's replication port; "" also while it is not known yet."""


class RoleChanger(Protocol):
    """Changes the role of a running broker. Its methods are called one after another."""

    async def become_master(self, role: ReplicaRole, sync_state_set: frozenset[int]) -> None:
        """Be the master of an epoch. Returns when sends are taken.

        Raises:
            StaleEpochError: The log has this epoch already; the broker is what it was.
        """
        ...

    async def become_slave(self, role: ReplicaRole) -> None:
        """Follow this master; also a new one, or the same at another address. With `master_address` "" the broker waits
        without a master: it serves reads and refuses writes."""
        ...
