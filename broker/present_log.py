"""Present log: how far the log of a broker whose role changes is, by the parts of its present role.

The epochs last from one role to the next.

    began   the parts of a role have the log open
    ended   they end: what is confirmed stays so for the next ones
Owner: the one event loop of the process.
"""

from __future__ import annotations

from thermocline.broker.assembly import LogBefore, Replicas
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication import Epochs, EpochStart, HandOver, SyncStateSet
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk
from thermocline.store.state import StoreCheckpoint


class PresentLog:
    """A ReplicaState (controlled/controlled_broker.py)."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        """Made before the store is opened."""
        self.epoch_start = EpochStart(disk, config.root_path)
        self._replicas: Replicas | None = None
        self._end_offset = LOG_START
        self._confirm_offset = StoreCheckpoint.load(disk, config.checkpoint_path).confirm_offset

    def began(self, replicas: Replicas) -> None:
        """The parts of a role have the log open."""
        self._replicas = replicas

    def ended(self) -> None:
        """They end. Idempotent."""
        if self._replicas is not None:
            self._end_offset, self._confirm_offset = self.end_offset, self.confirm_offset
            self._replicas = None

    @property
    def before(self) -> LogBefore:
        """For the parts of the next role."""
        return LogBefore(epochs=self.epoch_start.file, confirm_offset=self._confirm_offset)

    @property
    def epochs(self) -> Epochs:
        """Of the log."""
        return self.epoch_start.file.epochs

    @property
    def last_epoch(self) -> int:
        """Of the log; 0 without one."""
        last = self.epochs.last
        return 0 if last is None else last.epoch

    @property
    def served_epoch(self) -> int:
        """The newest epoch that this broker has served in as its master, in this life of its process; 0 if none."""
        return self.epoch_start.served_epoch

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where the log ends; while the role changes, where it ended."""
        return self._end_offset if self._replicas is None else self._replicas.end_offset

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """The log below it is on all brokers of the SyncStateSet, at a slave as it heard last."""
        return self._confirm_offset if self._replicas is None else self._replicas.confirm_offset

    @property
    def is_failed(self) -> bool:
        """Whether the log takes no writes until it is opened again."""
        return self._replicas is not None and self._replicas.has_failed_log

    @property
    def sync_state_set(self) -> SyncStateSet | None:
        """While this broker is the master of an epoch."""
        return None if self._replicas is None else self._replicas.sync_state_set

    @property
    def hand_over(self) -> HandOver | None:
        """Likewise: lets others have the whole log."""
        return None if self._replicas is None else self._replicas.hand_over
