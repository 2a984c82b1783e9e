"""A master and a slave without a log between them: the slave's tables follow the master's over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.broker.control_broker import ControlBroker, HalfFullDisk, control_broker
from tests.broker.slave_config import slave_config
from tests.clock import Clock
from thermocline.broker.assembly.replica_tables import make_metadata_follower
from thermocline.broker.replicas.metadata_follower import MetadataFollower
from thermocline.store.files.disk import Disk


class Following:
    """A slave, and what follows for it."""

    def __init__(self, slave: ControlBroker, *, master_address: str | None) -> None:
        self.slave = slave
        self.master_address = master_address
        self.follower: MetadataFollower = make_metadata_follower(
            slave.parts, master_address=lambda: self.master_address
        )

    @property
    def errors(self) -> dict[str, str]:
        """What failed, by table."""
        return {status.name: status.error for status in self.follower.status() if status.error}

    @property
    def changes(self) -> dict[str, int]:
        """How often each table had something new."""
        return {status.name: status.changed_count for status in self.follower.status()}


@asynccontextmanager
async def following(
    root: Path, *, master_address: str | None, clock: Clock | None = None, disk: Disk | None = None
) -> AsyncIterator[Following]:
    """Open a slave's parts; close them cleanly."""
    async with control_broker(root, clock=clock, disk=disk, config=slave_config()) as slave:
        found = Following(slave, master_address=master_address)
        try:
            yield found
        finally:
            await found.follower.close()


class RefusingDisk(HalfFullDisk):
    """Refuses to give a name to files of the names in `refused`."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()

    def rename(self, source: str, target: str) -> None:
        if target.rsplit("/", 1)[-1] in self.refused:
            raise OSError(5, "Input/output error", target)
        super().rename(source, target)
