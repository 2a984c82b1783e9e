"""Log cut: the log of a broker whose parts have ended is cut where it parts from its new master's.

    order infos of POP   are removed: they are made anew from the records that stay
    timers               their log and wheel are removed; the checkpoint stays until the master's takes its place
    store                queues, key index, log (store/truncation.py), then the epochs behind the cut

It may be cut off anywhere: the logs part again when the broker meets its master, and the rest is cut then. Offsets of
groups and delay levels may name messages that are gone, until the master's tables take their place: before that the
broker is not fit to be elected (broker/replicas/).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from thermocline.pop import order_table
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication import Alignment, EpochFile
from thermocline.store.files import Disk
from thermocline.store.index import IndexService
from thermocline.store.message_store import MessageStore
from thermocline.store.truncation import truncate_store
from thermocline.timers.followed_timers import remove_timer_files
from thermocline.timers.timer_config import TimerConfig

logger = logging.getLogger(__name__)


def cut_log(
    alignment: Alignment,
    *,
    disk: Disk,
    clock: Callable[[], int],
    timers: TimerConfig,
    epochs: EpochFile,
    open_local: Callable[[], MessageStore],
) -> PhysicalOffset:
    """Cut the log; where it ends, durably. Nothing is open afterwards. `open_local`: opens the store as a slave does.

    Raises:
        InvalidRequestError: The log begins behind that place: this broker needs an empty store.
        UnavailableError, CorruptDataError: The store cannot be opened.
        StoreClosedError, OSError, DiskFullError: It was not cut, or not in whole; try again.
    """
    store = open_local()
    try:
        log, config = store.commit_log, store.config
        if alignment.end_offset < log.min_offset:
            raise InvalidRequestError(
                "the log has nothing in common with the master's: it needs an empty store",
                end_offset=alignment.end_offset,
                min_offset=log.min_offset,
            )

        def cut_derived(end_offset: PhysicalOffset) -> None:
            remove_timer_files(disk, timers)
            orders_path = f"{config.config_path}/{order_table.FILE_NAME}"
            for path in (orders_path, f"{orders_path}.bak"):
                if disk.exists(path):
                    disk.remove(path)
            disk.sync_directory(config.config_path)
            IndexService.open(disk, config, log_end_offset=end_offset, was_clean=True, clock=clock).close()

        before = log.append_offset
        end_offset = truncate_store(store, disk, alignment.end_offset, cut_derived=cut_derived)
        epochs.cut(Alignment(end_offset, alignment.epoch))
        logger.warning("log was cut from_offset=%d to_offset=%d epoch=%d", before, end_offset, alignment.epoch)
        return end_offset
    finally:
        store.close()
