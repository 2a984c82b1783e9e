"""Replica node: one broker of a simulated set, as operators, clients and checks use it.

PlainNode (plain_node.py) replicates without a controller. Another form of the protocol is another class with these
methods: the set, its faults, its clients and its checks stay the same.
"""

from __future__ import annotations

from typing import Protocol

from tests.replication.simulation.virtual_world import Machine
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord


class ReplicaNode(Protocol):
    """One broker: a machine with a disk, and a process that runs or not."""

    name: str
    machine: Machine
    reported_offset: PhysicalOffset
    """What it has reported as its own at most, since its disk was empty."""

    @property
    def is_up(self) -> bool:
        """Whether its process runs; it may be frozen."""
        ...

    @property
    def is_master(self) -> bool:
        """Whether its process runs as a master."""
        ...

    @property
    def start_offset(self) -> PhysicalOffset:
        """Where its log begins; of a process that runs."""
        ...

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where its log ends; of a process that runs."""
        ...

    def start(self, *, is_master: bool, master: str | None) -> None:
        """Start the process, as the master or as a slave that follows the machine of this name, or yet none."""
        ...

    def kill(self) -> None:
        """The process ends; what it wrote stays."""
        ...

    def cut_power(self) -> None:
        """The machine is off; what was not synced may be lost."""
        ...

    def empty_disk(self) -> None:
        """Everything on the disk is gone; its process does not run."""
        ...

    def put(self, topic: str, queue_id: int, body: bytes, *, waits: bool) -> None:
        """A send arrives. `waits`: WAIT of the message."""
        ...

    def pull(
        self, topic: str, queue_id: int, offset: QueueOffset, *, count_max: int
    ) -> tuple[int, QueueOffset, list[MessageRecord]]:
        """A pull arrives: code of the answer, next offset, messages."""
        ...
