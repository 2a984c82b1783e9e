"""Batch acknowledgements: many popped messages in one request, one entry for each check point."""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.remoting.bit_set import encode_bit_set
from thermocline.remoting.bodies import BatchAck
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.offsets import QueueOffset

__all__ = ["batch_acks"]


def batch_acks(held: Iterable[tuple[str, ReceiptHandle]], *, group: str) -> list[BatchAck]:
    """The entries for messages of one broker: the topic that was popped from, and each one's receipt."""
    by_check_point: dict[tuple[str, int, int, int, int], list[ReceiptHandle]] = {}
    for topic, receipt in held:
        key = topic, int(receipt.retry_flag), receipt.queue_id, receipt.start_offset, receipt.pop_time_ms
        by_check_point.setdefault(key, []).append(receipt)
    return [
        BatchAck(
            bits=encode_bit_set(each.queue_offset - start_offset for each in receipts),
            consumer_group=group,
            invisible_ms=receipts[0].invisible_ms,
            pop_time_ms=pop_time_ms,
            queue_id=queue_id,
            retry=str(retry),
            revive_queue_id=receipts[0].revive_queue_id,
            start_offset=QueueOffset(start_offset),
            topic=topic,
        )
        for (topic, retry, queue_id, start_offset, pop_time_ms), receipts in by_check_point.items()
    ]
