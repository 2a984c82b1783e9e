"""Measurements by the hundred: many messages in one request, stored one after another, all or none.

    thermocline dev
    python examples/batches.py [NAMESERVER]

A batch holds messages of one topic and goes to one queue; its size, properties included, is bounded as that of one
message (4 MiB). To send more, cut the messages up into several batches.
"""

import sys
from collections.abc import Iterator, Sequence

from thermocline import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer

TOPIC = "measurements"
COUNT = 1_000
BATCH_BYTES_MAX = 32 * 1024
MESSAGE_BYTES_MORE = 200
"""More than what a message of ours has beside its body."""


def batches(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Cut messages up into batches of a size that suits networks and brokers."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        more = len(message.body) + MESSAGE_BYTES_MORE
        if batch and size + more > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


def main(namesrv: str) -> None:
    """Send measurements in batches, and count what arrives."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    messages = [Message(TOPIC, b"%d degrees" % (number % 40), keys=f"m{number}") for number in range(COUNT)]
    requests = 0
    with Producer(group="sensors", namesrv=namesrv) as producer:
        for batch in batches(messages):
            results = producer.send_batch(batch)
            offsets = [result.queue_offset for result in results]
            assert offsets == list(range(offsets[0], offsets[0] + len(batch))), "one after another"
            requests += 1
    print(f"sent: {COUNT} messages in {requests} requests")
    with PullConsumer(
        group="weather",
        namesrv=namesrv,
        pull_batch_size=500,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        consumer.subscribe(TOPIC)
        received: list[bytes] = []
        while len(received) < COUNT:
            received += [message.body for message in consumer.poll(timeout_ms=30_000)]
    assert received == [message.body for message in messages]
    print(f"received: {len(received)} messages, in order")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
