"""Replica role: the role that a controller has given a broker, and the change of a running broker to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRole:
    """A broker's part in its set, as the controller has decided it."""

    broker_id: int
    """0: master; otherwise the id that the controller gave."""
    master_epoch: int
    sync_state_set_epoch: int
    master_broker_id: int | None
    """The controller's id of the master; None: there is none now."""
    master_address: str
    """host:port of the master for clients and brokers; empty when there is none, or it is this broker."""
    master_ha_address: str
    """host:port of the master's log for replicas; empty likewise."""


class RoleChanger(Protocol):
    """A running broker whose role changes. One change at a time: a later call waits for the one before it."""

    @property
    def error(self) -> str:
        """Why the broker does not have the role that it should have; empty: it has it."""
        ...

    async def become_master(self, role: ReplicaRole, sync_state_set: frozenset[int]) -> None:
        """Be the master of `role.master_epoch`; on return writes are served.

        Raises:
            StaleEpochError: The log has this epoch, or a later one; it is not tried again.
            UnavailableError: It did not succeed; writes are refused, and it is tried again until another role comes.
        """

    async def become_slave(self, role: ReplicaRole) -> None:
        """Follow the master that `role` names, or wait without one: reads are served, writes are refused.

        Raises:
            UnavailableError: As `become_master`.
        """
