"""Ledger opening: claims the next epoch of a broker's ledger, however long its store is away.

Before that it is seen whether the store can tell writers apart (`tiered/doctor/fencing_check.py`).
A ledger that is damaged is mended once from the local copy, as far as that has it.

A store without a ledger is refused if the local copy tells that this store directory has written one: another bucket is
named, or the file system of a directory is not mounted. A ledger that began anew there would let the log's files go,
and when the other one is back, what they held would be missing.

So is a store whose log ends before what was committed of it: its disk was set back to an earlier state, or lost what it
had made durable. New messages would get offsets that are in the cold tier, and never be committed.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from thermocline.broker.helpers import HelloReply
from thermocline.remoting.errors import CorruptDataError, ObjectStoreUnavailableError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import decode_entry
from thermocline.tiered.doctor import check_fencing, races_for
from thermocline.tiered.healing import restore_damaged
from thermocline.tiered.ledger import (
    CHECKPOINT_INTERVAL,
    LedgerIdentity,
    LedgerReader,
    LedgerWriter,
    find_entry_or_hint,
    new_arbiter,
)
from thermocline.tiered.objects import UnfitStoreError, UntrustedStoreError
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.wrappers import LedgerCopyStore

logger = logging.getLogger(__name__)

OPEN_RETRY_MS = 500
OPEN_RETRY_MS_MAX = 10_000


async def open_ledger(
    store: LedgerCopyStore,
    settings: HelloReply,
    *,
    clock: Callable[[], int],
    on_failure: Callable[[str], None],
    append_offset: PhysicalOffset,
    make_random: Callable[[], random.Random] = random.Random,
    checkpoint_interval: int = CHECKPOINT_INTERVAL,
) -> LedgerWriter:
    """Return the writer; `on_failure` receives the reason while there is none yet. `append_offset`: where the log ended
    when this process began, or later.

    `make_random`: what it makes must differ in every process; `checkpoint_interval`: see LedgerWriter.

    Raises:
        FencedError: Another writer has taken over.
        ForeignLedgerError: The prefix belongs to another store directory.
        UnfitStoreError: The store would let two writers commit, or lacks the ledger that this directory has written, or
            that holds more than its log.
        UntrustedStoreError: The store's certificate is not trusted.
        CorruptDataError: The ledger is damaged, and there is no copy that fits.
    """
    mode = settings.tier.fencing_mode
    keys = BrokerKeys.of(cluster=settings.cluster_name, broker_name=settings.broker_name)
    # Its own for all attempts: a ballot proposes one entry for a version, whatever became of the first.
    arbiter = new_arbiter(mode, store, keys, random=make_random())
    races = races_for(settings.tier.cold_url)
    is_checked = races is None
    delay_ms = OPEN_RETRY_MS
    is_mended = False
    while True:
        try:
            if races is not None and not is_checked:
                await check_fencing(store, keys, mode=mode, random=make_random(), races=races)
                is_checked = True
            await _check_not_lost(store, keys, settings)
            writer = await LedgerWriter.open(
                store,
                keys,
                arbiter=arbiter,
                identity=LedgerIdentity(
                    store_uuid=settings.store_uuid,
                    cluster=settings.cluster_name,
                    broker_name=settings.broker_name,
                ),
                clock_ms=clock,
                random=make_random(),
                checkpoint_interval=checkpoint_interval,
            )
            await _check_log_reaches(writer, append_offset)
            return writer
        except CorruptDataError as error:
            on_failure(str(error))
            if is_mended or not await restore_damaged(
                store, keys, store_uuid=settings.store_uuid, find_copy=store.find
            ):
                raise
            is_mended = True
        except UntrustedStoreError:
            raise  # waiting does not help: the operator has to change a setting
        except ObjectStoreUnavailableError as error:
            on_failure(str(error))
            logger.debug("cold tier cannot be opened: %s retry_ms=%d", error, delay_ms)
            await asyncio.sleep(delay_ms / 1_000)
            delay_ms = min(delay_ms * 2, OPEN_RETRY_MS_MAX)


async def _check_not_lost(store: LedgerCopyStore, keys: BrokerKeys, settings: HelloReply) -> None:
    """UnfitStoreError when the store has no ledger, although this store directory has written one."""
    if races_for(settings.tier.cold_url) is None or not _has_written(store, keys, settings):
        return  # what is in memory ends with its process
    if await find_entry_or_hint(store, keys) or (await LedgerReader.open(store, keys)).catalog.version:
        return
    raise UnfitStoreError(
        "coldUrl names a place without this broker's history, which this store directory has written: name the right"
        " one, or mount its file system; to begin a new history there, whose clients do not see the old one, delete"
        f" {store.folder}",
        root=keys.root,
    )


async def _check_log_reaches(writer: LedgerWriter, append_offset: PhysicalOffset) -> None:
    """UnfitStoreError, and the writer is closed, when the ledger holds records from behind the end of the log."""
    committed_offset = writer.catalog.end_physical_offset
    if committed_offset <= append_offset:
        return
    await writer.close()
    raise UnfitStoreError(
        "the log of this store ends before what was committed of it: its disk was set back to an earlier state, or has"
        " lost what it had made durable; start with an empty directory and --recover-from",
        root=writer.keys.root,
        log_end=append_offset,
        committed_end=committed_offset,
    )


def _has_written(store: LedgerCopyStore, keys: BrokerKeys, settings: HelloReply) -> bool:
    """Whether there is a copy of an entry that follows another, of this directory under these names. A copy is made
    before its entry is stored; but the one that it follows was committed."""
    for key in reversed(store.entry_keys()):
        version, copy = keys.ledger_version(key), store.find(key)
        if copy is None or version is None or version == 1:
            continue
        try:
            entry = decode_entry(copy, version=version)
        except CorruptDataError:
            continue  # torn by a power cut
        names = entry.store_uuid, entry.cluster, entry.broker_name
        if names == (settings.store_uuid, settings.cluster_name, settings.broker_name):
            return True
    return False
