"""Opens a broker's timers: messages that wait for a time of delivery, see `timers/`."""

import logging
from collections.abc import Callable
from random import Random

from thermocline.broker.due.timer_settings import timer_config
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.timers.taken_back import TakenBackTimers
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.timers.timer_request import TIMER_QUEUE_ID

logger = logging.getLogger(__name__)


def open_timers(
    settings: BrokerSettings,
    store: MessageStore,
    *,
    disk: Disk,
    clock: Callable[[], int],
    chance: Random,
    taken_back: TakenBackTimers | None = None,
) -> TimerMessageStore | None:
    """The timers, which follow their settings from now on; None when they are switched off.

    `taken_back`: what another broker has delivered in this one's place.

    Raises:
        CorruptDataError: They cannot be recovered.
        OSError, DiskFullError: The disk failed.
    """
    if not settings.broker.timer_wheel:
        queue = store.queues.find(TIMER_TOPIC, TIMER_QUEUE_ID)
        if queue is not None and queue.next_offset > queue.min_offset:
            logger.warning("timers are switched off: what waits for its time is not delivered, and may be deleted")
        return None
    timers = TimerMessageStore.open(
        store, timer_config(settings), disk=disk, clock=clock, random=chance.random, taken_back=taken_back
    )
    settings.add_listener(lambda _: timers.follow(timer_config(settings)))
    return timers
