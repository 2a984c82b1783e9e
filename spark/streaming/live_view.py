"""LiveView: what brokers hold of the query's topics now, as far as it is flushed, for the query's planner.

One request a broker and topic (FLUSHED_RANGES): the end of every queue that no power cut takes back. Looks are at least
LOOK_INTERVAL_S apart unless somebody needs a fresh one. A broker that does not answer is not in the view: its queues
stand still for the query, or are read from the cold tier, until it answers again. `wait` is for who has to know (where
`latest` is, what `availableNow` ends at): it asks again until every broker of the routes has answered, for a bounded
time.
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

LOOK_INTERVAL_S = 0.25
RETRY_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """One topic on one broker."""

    store_uuid: str
    incarnation: int
    queues: dict[int, FlushedRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """What was found, by (topic, broker name); what could not be asked, and why."""

    topics: dict[tuple[str, str], LiveTopic] = field(default_factory=dict)
    failures: dict[tuple[str, str], UnavailableError] = field(default_factory=dict)
    """By (topic, broker name); the name is empty when no NameServer answers."""

    def missing(self, expected: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of (topic, broker name) that are not among the routes."""
        return sorted(key for key in expected if key not in self.topics and key not in self.failures)


class LiveView:
    """See the module's header. Lives in the planner's process; one thread."""

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
        self._last: LiveLook | None = None
        self._looked_at_s = 0.0
        self._away: frozenset[tuple[str, str]] = frozenset()

    def look(self, *, fresh: bool = False, wait_ms: int = 0, expected: Collection[tuple[str, str]] = ()) -> LiveLook:
        """What the brokers hold; with `wait_ms` of all brokers in the routes, or an error after that time.

        `expected`: (topic, broker name) that should be there. Those that no NameServer knows are waited for as long,
        then given up with a warning: a broker may have gone for good, and have left its history.

        Raises:
            UnavailableError: A broker in the routes has not answered in `wait_ms`.
            InvalidRequestError: A broker does not know the request.
        """
        deadline_s = self._clock_s() + wait_ms / 1_000
        while True:
            if fresh or wait_ms or self._last is None or self._clock_s() - self._looked_at_s >= LOOK_INTERVAL_S:
                self._last = self._client.run(ask_all(self._client, self._topics))
                self._looked_at_s = self._clock_s()
                self._tell(self._last)
            missing = self._last.missing(expected)
            if not wait_ms or not (self._last.failures or missing):
                return self._last
            if self._clock_s() >= deadline_s:
                if not self._last.failures:
                    logger.warning(
                        "no NameServer knows these brokers, what is cold of them is read brokers=%s", missing
                    )
                    return self._last
                (topic, broker_name), error = next(iter(self._last.failures.items()))
                raise UnavailableError(
                    "a broker does not answer, and where its queues end has to be known",
                    topic=topic,
                    broker=broker_name or "no NameServer answers",
                    waited_ms=wait_ms,
                ) from error
            self._sleep(RETRY_PAUSE_S)

    def _tell(self, look: LiveLook) -> None:
        """Log each outage when it begins and when it ends, not at every look."""
        away = frozenset(look.failures)
        for topic, broker_name in sorted(away - self._away):
            error = look.failures[(topic, broker_name)]
            logger.warning("broker away, waiting topic=%s broker=%s error=%s", topic, broker_name or "all", error)
        for topic, broker_name in sorted(self._away - away):
            logger.warning("broker is back topic=%s broker=%s", topic, broker_name or "all")
        self._away = away


async def ask_all(client: LiveClient, topics: tuple[str, ...]) -> LiveLook:
    """Ask every master of every topic, all at once."""
    look = LiveLook()

    async def ask(topic: str, broker_name: str, address: str) -> None:
        try:
            look.topics[(topic, broker_name)] = await flushed_ranges(client, topic, address)
        except TopicNotFoundError:
            pass  # deleted a moment ago: the route has not heard of it
        except UnavailableError as error:
            look.failures[(topic, broker_name)] = error

    asked: list[tuple[str, str, str]] = []
    for topic in topics:
        try:
            masters = await client.masters(topic)
        except TopicNotFoundError:
            continue
        except UnavailableError as error:
            look.failures[(topic, "")] = error
            continue
        asked += [(topic, broker_name, address) for broker_name, address in masters.items()]
    await asyncio.gather(*(ask(*each) for each in asked))
    return look


async def flushed_ranges(client: LiveClient, topic: str, address: str) -> LiveTopic:
    """What one broker holds of a topic.

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
