"""Makes a broker's POP store, see `pop/`, and waits until its records are durable."""

import asyncio
from collections.abc import Callable

from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables import ConsumerOffsets
from thermocline.pop.order_table import OrderTable
from thermocline.pop.pop_store import PopStore
from thermocline.pop.revive_log import ReviveLog
from thermocline.remoting.errors import ServiceUnavailableError
from thermocline.remoting.handles import revive_topic
from thermocline.store.log import PutStatus
from thermocline.store.message_store import MessageStore


def make_pop_store(
    config: BrokerConfig,
    store: MessageStore,
    offsets: ConsumerOffsets,
    orders: OrderTable,
    *,
    clock: Callable[[], int],
) -> PopStore:
    """A store that is not open yet: `offsets` and `orders` have to be loaded first."""
    return PopStore(
        store,
        ReviveLog(
            store,
            topic=revive_topic(config.cluster_name),
            queue_count=config.revive_queues,
            broker_name=config.broker_name,
            clock=clock,
        ),
        offsets,
        orders,
        clock=clock,
        pending_max=config.pop_pending_max,
    )


async def popped_is_durable(store: MessageStore, pops: PopStore) -> None:
    """Return when the log is durable up to the last record of what was popped.

    Raises:
        ServiceUnavailableError: The flush failed.
    """
    offset = pops.last_offset
    if offset <= store.commit_log.flush_offset:
        return
    flushed: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    store.flush.wait(offset, lambda status: None if flushed.done() else flushed.set_result(status))
    status = await flushed
    if status is not PutStatus.PUT_OK:
        raise ServiceUnavailableError(status.value)
