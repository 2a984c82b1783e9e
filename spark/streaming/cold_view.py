"""ColdView: the cold tier as a query's planner sees it: each broker's newest catalog, followed from version to version.

A broker's ledger is opened once and then probed for entries: one or two small GETs a call, and none while the last
answer is younger than the caller accepts. Brokers are listed anew every PLACES_INTERVAL_S, or when a caller names one
that is not in the view. Pieces of packs are loaded once. While the store does not answer, the last catalogs are used: a
version stays readable for the grace period of the cold tier.

Bounded by the catalog's size for the topics of the query. One thread of the planner's process uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError, UnavailableError
from thermocline.spark.access.blocking_store import BlockingStore, blocking_store
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.access.store_url import broker_roots, possible_prefixes
from thermocline.spark.reading.read_plan import ColdSource
from thermocline.spark.reading.source_options import ReadOptions
from thermocline.spark.streaming.cold_line import ColdLine, cold_lines
from thermocline.tiered.catalog import Catalog, PackPieces, TopicEntry, topic_visible_from_ms, with_pieces
from thermocline.tiered.ledger import LedgerReader
from thermocline.tiered.objects import masked_url
from thermocline.tiered.segments import BrokerKeys

logger = logging.getLogger(__name__)

PLACES_INTERVAL_S = 60.0
PIECES_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdTopic:
    """One topic of one broker at one version. A deleted topic has no lines."""

    source: ColdSource
    store_uuid: str
    entry: TopicEntry
    lines: dict[int, ColdLine]
    catalog: Catalog

    @property
    def incarnation(self) -> int:
        """The incarnation of the segments; the last one when the topic is deleted."""
        return self.entry.incarnation

    def visible_from_ms(self, now_ms: int) -> int:
        """The store time from which on messages are visible."""
        return topic_visible_from_ms(self.catalog, self.entry.topic, now_ms=now_ms)


class ColdView:
    """See the module's header."""

    def __init__(
        self,
        options: ReadOptions,
        *,
        clock_s: Callable[[], float],
        open_store: Callable[[str, StoreOptions], BlockingStore] = blocking_store,
    ) -> None:
        """`clock_s` never steps back."""
        self._options = options
        self._clock_s = clock_s
        self._open_store = open_store
        self._brokers: dict[tuple[str, str], _BrokerView] = {}
        self._polled_at_s: float | None = None
        self._places_at_s: float | None = None

    @property
    def broker_names(self) -> frozenset[str]:
        """The names of the brokers in the view."""
        return frozenset(broker.broker_name for broker in self._brokers.values())

    def topics_by_broker(self, *, age_s_max: float, brokers: Collection[str] = ()) -> dict[tuple[str, str], ColdTopic]:
        """Each broker's cold messages of each topic, by (topic, broker name); at most `age_s_max` old.

        `brokers`: names of brokers that exist; if one is not in the view, brokers are listed anew.

        Raises:
            ObjectNotFoundError: There is no cold tier at a URL.
            InvalidRequestError: Two brokers have one name.
            UnavailableError: The store gave no answer at the first call.
            CorruptDataError: A catalog is damaged.
        """
        now_s = self._clock_s()
        if self._polled_at_s is None or now_s - self._polled_at_s >= age_s_max:
            try:
                is_due = self._places_at_s is None or now_s - self._places_at_s >= PLACES_INTERVAL_S
                if is_due or not self.broker_names.issuperset(brokers):
                    self._find_brokers()
                    self._places_at_s = now_s
                for broker in self._brokers.values():
                    broker.refresh()
            except UnavailableError as error:
                if self._polled_at_s is None:
                    raise
                logger.warning("the cold tier gives no answer, its last catalogs are used error=%s", error)
            self._polled_at_s = now_s
        return {key: topic for broker in self._brokers.values() for key, topic in broker.topics.items()}

    def _find_brokers(self) -> None:
        for url in self._options.urls:
            found = False
            for prefix_url, under in possible_prefixes(url):
                store = self._open_store(prefix_url, self._options.store)
                try:
                    roots = store.run(broker_roots(store.store, under))
                except InvalidRequestError as error:
                    if self._places_at_s is None:
                        raise
                    # Folders have come meanwhile, perhaps the query's own output.
                    logger.warning("brokers that are new are not found, the query goes on without them error=%s", error)
                    found = True
                    break
                for root in roots:
                    if (prefix_url, root) not in self._brokers:
                        self._add(_BrokerView(store, prefix_url, root, frozenset(self._options.topics)))
                found = bool(roots)
                if found:
                    break
            if not found and self._places_at_s is None:
                raise ObjectNotFoundError("there is no cold tier at this URL", url=masked_url(url))

    def _add(self, broker: _BrokerView) -> None:
        broker.refresh()
        for other in self._brokers.values():
            if other.broker_name == broker.broker_name:
                raise InvalidRequestError(
                    "two brokers have one name; name the cluster in the URL: s3a://bucket/prefix/cluster",
                    brokers=" ".join(f"{masked_url(each.url)} {each.root}" for each in (other, broker)),
                )
        self._brokers[(broker.url, broker.root)] = broker


class _BrokerView:
    """One broker's ledger, followed."""

    def __init__(self, store: BlockingStore, url: str, root: str, topics: frozenset[str]) -> None:
        self._store = store
        self.url = url
        self.root = root
        self.broker_name = ""
        self._topic_names = topics
        self._reader: LedgerReader | None = None
        self._pieces: PackPieces | None = None
        self._version = -1
        self.topics: dict[tuple[str, str], ColdTopic] = {}

    def refresh(self) -> None:
        """Go on to the newest version."""
        self._store.run(self._refresh())

    async def _refresh(self) -> None:
        if self._reader is None:
            keys = BrokerKeys(self.root)
            self._reader = await LedgerReader.open(self._store.store, keys, only_topics=self._topic_names)
            self._pieces = PackPieces(self._store.store, bytes_max=PIECES_BYTES_MAX)
        else:
            await self._reader.refresh()
        catalog = self._reader.catalog
        if catalog.version == self._version:
            return
        assert self._pieces is not None
        self.broker_name = catalog.broker_name
        topics: dict[tuple[str, str], ColdTopic] = {}
        for topic in sorted(self._topic_names):
            entry = await with_pieces(self._pieces, catalog, topic)
            if entry is not None:
                before = self.topics.get((topic, self.broker_name))
                # Most versions are about other topics.
                is_same = before is not None and before.entry == entry
                lines = before.lines if before is not None and is_same else cold_lines(entry)
                topics[(topic, self.broker_name)] = ColdTopic(
                    source=ColdSource(
                        url=self.url, root=self.root, broker_name=self.broker_name, version=catalog.version
                    ),
                    store_uuid=catalog.store_uuid,
                    entry=entry,
                    lines=lines,
                    catalog=catalog,
                )
        self.topics, self._version = topics, catalog.version
