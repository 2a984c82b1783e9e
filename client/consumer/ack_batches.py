"""Acknowledging many popped messages in one request: one entry for each check point, with a bit for each message.

Source: BatchAck.java, AckMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.remoting.bit_set import encode_bit_set
from thermocline.remoting.bodies import BatchAck
from thermocline.remoting.handles import ReceiptHandle

__all__ = ["ack_batches"]


def ack_batches(receipts: Iterable[ReceiptHandle], *, topic: str, group: str) -> list[BatchAck]:
    """The entries for messages that were popped from one broker. `topic`: the one that was asked for."""
    by_check_point: dict[tuple[int, int, int, int], list[ReceiptHandle]] = {}
    for receipt in receipts:
        key = int(receipt.retry_flag), receipt.queue_id, receipt.start_offset, receipt.pop_time_ms
        by_check_point.setdefault(key, []).append(receipt)
    return [
        BatchAck(
            bits=encode_bit_set(each.queue_offset - first.start_offset for each in of_check_point),
            consumer_group=group,
            invisible_ms=first.invisible_ms,
            pop_time_ms=first.pop_time_ms,
            queue_id=first.queue_id,
            retry=str(int(first.retry_flag)),
            revive_queue_id=first.revive_queue_id,
            start_offset=first.start_offset,
            topic=topic,
        )
        for of_check_point in by_check_point.values()
        for first in of_check_point[:1]
    ]
