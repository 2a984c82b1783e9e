"""A push consumer of the Python SDK in a process of its own, so that it can be killed.

    python -m tests.interop.elastic_member NAMESRV GROUP TOPIC JOURNAL

Each message's name is a line of the journal, written before its listener returns; a first line `ready` when it runs.
Ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from thermocline.client import ConsumeContext, ConsumeFromWhere, ConsumeResult, PushConsumer, ReceivedMessage

INTERVAL_MS = 1_000
READY = "ready"


def name_of(message: ReceivedMessage) -> str:
    """The name that its sender gave a message."""
    return message.body.rstrip(b".").decode()


@contextlib.contextmanager
def elastic_consumer(namesrv: str, group: str, topic: str, journal: Path) -> Iterator[PushConsumer]:
    """A running consumer that notes what it is given."""

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        file.write("".join(f"{name_of(message)}\n" for message in messages))
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        group=group,
        namesrv=namesrv,
        instance_name=journal.name,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval_ms=INTERVAL_MS,
        heartbeat_broker_interval_ms=INTERVAL_MS,
        rebalance_interval_ms=INTERVAL_MS,
        persist_consumer_offset_interval_ms=INTERVAL_MS,
    )
    consumer.subscribe(topic)
    consumer.register_listener(listen)
    with journal.open("a", buffering=1) as file, consumer:
        yield consumer


def main(namesrv: str, group: str, topic: str, journal: str) -> None:
    """Consume until standard input ends."""
    with elastic_consumer(namesrv, group, topic, Path(journal)):
        with Path(journal).open("a") as file:
            file.write(f"{READY}\n")
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
