"""Messages of every kind of send: the other broker reads each of them."""

from __future__ import annotations

from tests.interop.cluster import Cluster
from tests.interop.java_agent import message_body

TOPIC = "Exchanged"
MESSAGE_COUNT = 400
BODY_BYTES = 2_000


class Messages:
    """Sent one by one, in batches and compressed."""

    def write(self, cluster: Cluster) -> None:
        """Send them at the first broker."""
        kinds: list[tuple[str, dict[str, int]]] = [
            ("sync", {}),
            ("async", {}),
            ("batch", {"batch_size": 32}),
            ("sync", {"compress_over_bytes": 100}),
        ]
        count = MESSAGE_COUNT // len(kinds)
        for number, (kind, extra) in enumerate(kinds):
            name = f"filler-{number}"
            cluster.agent.produce(
                kind=kind,
                count=count,
                start=number * count,
                body_bytes=BODY_BYTES,
                tags=["A", "B"],
                name=name,
                group=name,
                namesrv=cluster.namesrv,
                topic=TOPIC,
                prefix=TOPIC,
                **extra,
            )
            cluster.agent.call("stop_producer", name=name)

    def check(self, cluster: Cluster) -> None:
        """The second broker has each message once, with its body, tag and key."""
        read = cluster.agent.read_topic(cluster.namesrv, TOPIC)
        by_index = {int(message.properties["index"]): message for message in read}
        assert len(read) == len(by_index) == MESSAGE_COUNT
        for index, message in by_index.items():
            assert message.body == message_body(TOPIC, index, BODY_BYTES)
            assert message.tags == ["A", "B"][index % 2]
            assert message.keys == f"{TOPIC}-key-{index}"
