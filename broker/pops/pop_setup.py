"""Makes a broker's POP store, see `pop/`."""

from collections.abc import Callable

from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables import ConsumerOffsets
from thermocline.pop.order_table import OrderTable
from thermocline.pop.pop_store import PopStore
from thermocline.pop.revive_log import ReviveLog
from thermocline.remoting.handles import revive_topic
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
