"""LiveView: what brokers hold of the query's topics now, as far as it is flushed, for the query's planner.

One request a broker and topic (FLUSHED_RANGES): the end of every queue that no power cut takes back. Polls are at least
POLL_INTERVAL_S apart unless the caller wants a fresh one. A broker that does not answer is not in the view: its queues
stand still for the query, or are read from the cold tier, until it answers again. A caller that needs all ends (for
`latest`, or for the end of `availableNow`) passes `wait_ms`: brokers are polled until every broker of the routes has
answered, or the time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import msgspec

from thermocline.client.answer import check_answer
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedRequestError,
)
from thermocline.remoting.private_requests import (
    FlushedRange,
    FlushedRangesAnswer,
    FlushedRangesHeader,
    PrivateRequestCode,
)
from thermocline.spark.streaming.live_client import LiveClient

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25
RETRY_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """One topic on one broker."""

    store_uuid: str
    incarnation: int
    queues: dict[int, FlushedRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSnapshot:
    """The answers of one poll by (topic, broker name), and the errors of those that gave none."""

    topics: dict[tuple[str, str], LiveTopic] = field(default_factory=dict)
    failures: dict[tuple[str, str], UnavailableError] = field(default_factory=dict)
    """By (topic, broker name); the name is empty when no NameServer answers."""

    def missing(self, expected: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of (topic, broker name) that are not among the routes."""
        return sorted(key for key in expected if key not in self.topics and key not in self.failures)


class LiveView:
    """See the module's header. One thread of the planner's process uses it."""

    def __init__(
        self,
        client: LiveClient,
        topics: tuple[str, ...],
        *,
        clock_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """`clock_s` never steps back."""
        self._client = client
        self._topics = topics
        self._clock_s = clock_s
        self._sleep = sleep
        self._last: LiveSnapshot | None = None
        self._polled_at_s = 0.0
        self._away: frozenset[tuple[str, str]] = frozenset()

    def snapshot(
        self, *, fresh: bool = False, wait_ms: int = 0, expected: Collection[tuple[str, str]] = ()
    ) -> LiveSnapshot:
        """Return the brokers' queue ranges; with `wait_ms` of all brokers in the routes, or an error after that time.

        `expected`: (topic, broker name) that should be in the routes. The view waits for a missing one as long, then
        continues with a warning: a broker may have gone for good, with its history in the cold tier.

        Raises:
            UnavailableError: A broker in the routes has not answered in `wait_ms`.
            InvalidRequestError: A broker does not know the request.
        """
        deadline_s = self._clock_s() + wait_ms / 1_000
        while True:
            if fresh or wait_ms or self._last is None or self._clock_s() - self._polled_at_s >= POLL_INTERVAL_S:
                self._last = self._client.run(ask_all(self._client, self._topics))
                self._polled_at_s = self._clock_s()
                self._log_outages(self._last)
            missing = self._last.missing(expected)
            if not wait_ms or not (self._last.failures or missing):
                return self._last
            if self._clock_s() >= deadline_s:
                if not self._last.failures:
                    logger.warning(
                        "these brokers are in no route, only their cold messages are read brokers=%s", missing
                    )
                    return self._last
                (topic, broker_name), error = next(iter(self._last.failures.items()))
                raise UnavailableError(
                    "a broker does not answer, and the ends of its queues are needed",
                    topic=topic,
                    broker=broker_name or "no NameServer answers",
                    waited_ms=wait_ms,
                ) from error
            self._sleep(RETRY_PAUSE_S)

    def _log_outages(self, snapshot: LiveSnapshot) -> None:
        """Log each outage when it begins and when it ends, not at every poll."""
        away = frozenset(snapshot.failures)
        for topic, broker_name in sorted(away - self._away):
            error = snapshot.failures[(topic, broker_name)]
            logger.warning("broker away, waiting topic=%s broker=%s error=%s", topic, broker_name or "all", error)
        for topic, broker_name in sorted(self._away - away):
            logger.warning("broker is back topic=%s broker=%s", topic, broker_name or "all")
        self._away = away


async def ask_all(client: LiveClient, topics: tuple[str, ...]) -> LiveSnapshot:
    """Ask every master of every topic, all at once."""
    snapshot = LiveSnapshot()

    async def ask(topic: str, broker_name: str, address: str) -> None:
        try:
            snapshot.topics[(topic, broker_name)] = await flushed_ranges(client, topic, address)
        except TopicNotFoundError:
            pass  # deleted a moment ago: the route still names the topic
        except UnavailableError as error:
            snapshot.failures[(topic, broker_name)] = error

    asked: list[tuple[str, str, str]] = []
    for topic in topics:
        try:
            masters = await client.masters(topic)
        except TopicNotFoundError:
            continue
        except UnavailableError as error:
            snapshot.failures[(topic, "")] = error
            continue
        asked += [(topic, broker_name, address) for broker_name, address in masters.items()]
    await asyncio.gather(*(ask(*each) for each in asked))
    return snapshot


async def flushed_ranges(client: LiveClient, topic: str, address: str) -> LiveTopic:
    """Ask one broker for its queue ranges of a topic.

    Raises:
        TopicNotFoundError: It does not have it.
        UnavailableError: No answer.
        InvalidRequestError: It does not know the request.
    """
    command = RemotingCommand.request(PrivateRequestCode.FLUSHED_RANGES, FlushedRangesHeader(topic=topic))
    answer = await client.ask(address, command)
    try:
        check_answer(answer, address=address)
        body = msgspec.json.decode(answer.body, type=FlushedRangesAnswer)
    except UnsupportedRequestError as error:
        raise InvalidRequestError(
            "the broker cannot say what is flushed: reading live messages needs a Thermocline broker of this version;"
            " without namesrvAddr the cold tier alone is read",
            address=address,
        ) from error
    except msgspec.DecodeError as error:
        raise CorruptDataError("the broker's answer cannot be understood", address=address) from error
    return LiveTopic(
        store_uuid=body.store_uuid,
        incarnation=body.incarnation,
        queues={queue.queue_id: queue for queue in body.queues},
    )
