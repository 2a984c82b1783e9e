"""Message trace: which groups sent and consumed a message, and with which result.

    thermocline dev --set traceTopicEnable=true
    python examples/message_trace.py [NAMESERVER]

Producers and consumers with `enable_trace` send trace records to the broker's trace topic, in the background.
`thermocline message trace` and `mqadmin queryMsgTraceById` show the same records.
"""

import sys
import threading
from collections.abc import Sequence

from thermocline import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PublishTrace,
    PushConsumer,
    ReceivedMessage,
    SubscribeAfterTrace,
)

TOPIC = "parcels"
GROUPS = ("billing", "shipping")


def consume(namesrv: str, group: str) -> None:
    """Consume one message. Closing the consumer sends its waiting trace records."""
    done = threading.Event()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        done.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        group=group,
        namesrv=namesrv,
        enable_trace=True,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    consumer.register_listener(listener)
    with consumer:
        done.wait(timeout=60)


def main(namesrv: str) -> None:
    """Send a message, have two groups consume it, and read its trace."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
        with Producer(group="shop", namesrv=namesrv, enable_trace=True) as producer:
            message_id = producer.send(Message(TOPIC, b"one book", tags="paid", keys="4711")).message_id
        for group in GROUPS:
            consume(namesrv, group)
        for step in admin.message_trace(message_id):
            record = step.record
            if isinstance(record, PublishTrace):
                print(f"sent by {record.group}: {record.body_bytes} bytes, tag {record.tags}, key {record.keys}")
            elif isinstance(record, SubscribeAfterTrace):
                print(f"consumed by {record.group}: {record.outcome.name}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
