"""Queue assignment: computes in the broker which queues of a topic one client of a group is to read.

    PULL   the strategy's share, each queue to one client
             AVG             neighbouring queues in equal runs; the first clients take one more
             AVG_BY_CIRCLE   dealt out one by one
    POP    share_count below 1, or as many as there are other clients: every client reads all queues, which is written
           as queue id -1, once for each broker
           as many queues as clients or more: the client's share, and those of the `share_count` clients behind it
           fewer queues than clients: one queue, round the list, so that every client gets one

Queues and clients are sorted, so that all brokers and clients come to the same result; a client with two connections
is one. A client that is not in the list gets nothing.
Source: QueryAssignmentProcessor.java (doLoadBalance, allocate4Pop), AllocateMessageQueueAveragely.java,
AllocateMessageQueueAveragelyByCircle.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from thermocline.remoting.bodies import MessageQueue

ALL_QUEUES = -1

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


def _averagely(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, remainder = divmod(len(queues), len(client_ids))
    start = index * share + min(index, remainder)
    return list(queues[start : start + share + (index < remainder)])


def _by_circle(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
    return list(queues[client_ids.index(client_id) :: len(client_ids)]) if client_id in client_ids else []


STRATEGIES: Mapping[str, Strategy] = {"AVG": _averagely, "AVG_BY_CIRCLE": _by_circle}
"""By the name that clients ask for."""


def assign_for_pull(
    strategy: Strategy, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """The queues that a client is to pull."""
    return strategy(sorted(queues), sorted(set(client_ids)), client_id)


def assign_for_pop(
    strategy: Strategy,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    client_id: str,
    *,
    share_count: int,
) -> list[MessageQueue]:
    """The queues that a client is to pop; one may be shared by several clients, and stands in the list once."""
    queues, client_ids = sorted(queues), sorted(set(client_ids))
    if share_count <= 0 or share_count >= len(client_ids) - 1:
        everywhere = [
            MessageQueue(topic=each.topic, broker_name=each.broker_name, queue_id=ALL_QUEUES) for each in queues
        ]
        return list(dict.fromkeys(everywhere))
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if len(client_ids) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    readers = [client_ids[(index + step) % len(client_ids)] for step in range(share_count + 1)]
    return list(dict.fromkeys(queue for reader in readers for queue in strategy(queues, client_ids, reader)))
