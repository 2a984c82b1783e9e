"""First message: whether a queue's very first message, offset 0, is near enough to the end of the log to be in memory.

A group that starts at "last" begins with it then, so that it gets what came just before its first member. What only the
cold tier holds is not in memory: otherwise a new group that wants what comes from now on would be sent through years of
history.
Source: MessageStore.checkInMemByConsumeOffset, Apache RocketMQ 5.3.
"""

from thermocline.broker.context import BrokerContext
from thermocline.broker.machine_memory import total_memory_bytes


def is_first_message_in_memory(
    context: BrokerContext, topic: str, queue_id: int, *, memory_bytes: int | None = None
) -> bool:
    """`memory_bytes`: the machine's; None: as it is."""
    queue = context.lookup.find(topic, queue_id)
    if queue is None or queue.next_offset == 0 or context.visible.hot_start(queue) > 0:
        return False
    unit = queue.unit(0)
    if unit.is_empty:
        return False
    behind_bytes = context.store.commit_log.append_offset - unit.physical_offset
    memory_bytes = total_memory_bytes() if memory_bytes is None else memory_bytes
    return behind_bytes <= memory_bytes * context.config.memory_percent // 100
