"""Promotion: what a broker does about its ledger before it serves as a master, at its start or while it runs.

enrolled       the store was a slave's: it takes the ledger over (ledger_takeover.py), which needs the bucket
not enrolled   the ledger is its own, or another store of the set has taken it over: the bucket is asked, and has
               OWNER_TIMEOUT_S to answer. Under a controller the epoch of its election is recorded there, too
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from thermocline.broker.recovery.ledger_takeover import (
    TakeoverReport,
    check_ledger,
    claim_again,
    find_enrolment,
    take_over,
)
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.errors import CorruptDataError, ObjectStoreUnavailableError, SettingError
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.tiered.stores import open_object_store

logger = logging.getLogger(__name__)

OWNER_TIMEOUT_S = 5.0
"""How long a master waits for the bucket to say whose ledger it has."""


async def continue_ledger(
    settings: BrokerSettings,
    *,
    disk: Disk,
    clock: Callable[[], int],
    open_local: Callable[[StoreConfig], MessageStore],
    master_epoch: int = 0,
) -> TakeoverReport | None:
    """See the module's header; the store is not open. `open_local`, `master_epoch`, errors: as those of `take_over`;
    without an enrolment a bucket that does not answer, or cannot be read, is the tier process's concern, which asks
    again for as long as it takes.

    Raises:
        SettingError: The store is a slave's, and the broker has no cold tier, too.
    """
    broker, store, tier = settings.broker, settings.store, settings.tier
    is_enrolled = find_enrolment(disk, store) is not None
    if not tier.is_enabled:
        if is_enrolled:
            # Without the ledger's ends it would give out offsets that messages in the bucket have.
            raise SettingError("this store is that of a slave with a cold tier: a master on it needs its coldUrl, too")
        return None
    chance = random.Random()
    bucket = await open_object_store(tier.cold_url)
    try:
        if is_enrolled:
            return await take_over(
                bucket,
                broker=broker,
                store=store,
                tier=tier,
                disk=disk,
                clock=clock,
                random=chance,
                open_local=open_local,
                master_epoch=master_epoch,
            )
        try:
            async with asyncio.timeout(OWNER_TIMEOUT_S):
                await check_ledger(bucket, broker=broker, store=store, disk=disk, master_epoch=master_epoch)
                if master_epoch:
                    await claim_again(
                        bucket,
                        broker=broker,
                        store=store,
                        tier=tier,
                        disk=disk,
                        clock=clock,
                        random=chance,
                        master_epoch=master_epoch,
                    )
        except (TimeoutError, ObjectStoreUnavailableError, CorruptDataError) as error:
            logger.warning("not known whose ledger this is, sends are taken: %s", str(error) or "no answer in time")
        return None
    finally:
        await bucket.close()
