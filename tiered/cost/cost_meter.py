"""CostMeter: one broker's requests to its object store, by purpose and by topic, since start and in the last hour.

    segments      objects of one topic: each request counts for that topic
    packs         objects that topics share
    index         index objects, for lookups by key and place
    ledger        entries and the hint of the newest one
    checkpoints   the saved catalog
    state         snapshots for recovery
    pins          versions in use by readers; listed by each collection of garbage
    doctor        probes before a ledger is opened
    other         ballots, listings of everything

Requests for other objects than segments are shared by topics; `topic_shares.py` divides them, and takes the requests of
each pack, which are kept for it. The last hour is kept as the totals of each purpose at the first request of each
minute, so that an idle broker has nothing to update.

Bounded: TOPICS_MAX topics have an account, further ones share one, as do packs beyond PACKS_MAX; HISTORY_MAX minutes.
Belongs to the tier process's loop; `accounts_of` is called for each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.wrappers import StoreCounters

TOPICS_MAX = 10_000
PACKS_MAX = 4_096
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
HISTORY_MAX = HOUR_MS // MINUTE_MS + 1
OTHER_TOPICS = ""
"""The account of topics that have none of their own; no topic has an empty name."""


class Purpose(StrEnum):
    """What a request is for."""

    SEGMENTS = "segments"
    PACKS = "packs"
    INDEX = "index"
    LEDGER = "ledger"
    CHECKPOINTS = "checkpoints"
    STATE = "state"
    PINS = "pins"
    DOCTOR = "doctor"
    OTHER = "other"


class _Moment(msgspec.Struct, frozen=True):
    """The totals of each purpose as they were until `time_ms`."""

    time_ms: int
    totals: Mapping[Purpose, StoreCounters]


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of the last `elapsed_ms`: an hour, or the time since start if that is less."""

    elapsed_ms: int
    by_purpose: Mapping[Purpose, StoreCounters]


@dataclass(slots=True)
class CostMeter:
    """See the module's header. `clock`: milliseconds since 1970."""

    keys: BrokerKeys
    clock: Callable[[], int]
    totals: StoreCounters = field(default_factory=StoreCounters)
    by_purpose: dict[Purpose, StoreCounters] = field(default_factory=dict)
    by_topic: dict[str, StoreCounters] = field(default_factory=dict)
    """By the topic's name as keys have it (`object_keys.escape_name`)."""
    started_ms: int = 0
    _packs: dict[str, StoreCounters] = field(default_factory=dict)
    _history: deque[_Moment] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    _prefixes: tuple[tuple[str, Purpose], ...] = ()

    def __post_init__(self) -> None:
        self.started_ms = self.clock()
        self.by_purpose = {purpose: StoreCounters() for purpose in Purpose}
        keys = self.keys
        self._prefixes = (
            (keys.packs_prefix, Purpose.PACKS),
            (keys.indexes_prefix, Purpose.INDEX),
            (keys.ledger_prefix, Purpose.LEDGER),
            (keys.head_hint, Purpose.LEDGER),
            (keys.checkpoints_prefix, Purpose.CHECKPOINTS),
            (keys.state_prefix, Purpose.STATE),
            (keys.pins_prefix, Purpose.PINS),
            (keys.doctor_prefix, Purpose.DOCTOR),
        )

    def accounts_of(self, key: str) -> tuple[StoreCounters, ...]:
        """The counters of a request for this key, besides the totals."""
        self._note_minute()
        prefix = self.keys.topics_prefix
        if key.startswith(prefix):
            topic, slash, _ = key[len(prefix) :].partition("/")
            if slash:
                return self.by_purpose[Purpose.SEGMENTS], self._topic(topic)
        for prefix, purpose in self._prefixes:
            if key.startswith(prefix):
                account = self.by_purpose[purpose]
                return (account, self._pack(key)) if purpose is Purpose.PACKS else (account,)
        return (self.by_purpose[Purpose.OTHER],)

    def take_packs(self) -> dict[str, StoreCounters]:
        """Requests for packs since the last call, by their keys; those of "" are for packs beyond the bound."""
        packs, self._packs = self._packs, {}
        return packs

    def recent(self) -> Recent:
        """The requests of the last hour, to the minute."""
        now_ms = self.clock()
        since_ms = now_ms - HOUR_MS
        if self.started_ms >= since_ms:
            return Recent(elapsed_ms=max(1, now_ms - self.started_ms), by_purpose=_copies(self.by_purpose))
        # The totals did not change between a moment and the one before it, so the first within the hour is the hour's.
        before = next((moment.totals for moment in self._history if moment.time_ms >= since_ms), self.by_purpose)
        return Recent(
            elapsed_ms=HOUR_MS,
            by_purpose={purpose: counters.since(before[purpose]) for purpose, counters in self.by_purpose.items()},
        )

    def _topic(self, name: str) -> StoreCounters:
        counters = self.by_topic.get(name)
        if counters is None:
            if len(self.by_topic) >= TOPICS_MAX:
                name = OTHER_TOPICS
            counters = self.by_topic.setdefault(name, StoreCounters())
        return counters

    def _pack(self, key: str) -> StoreCounters:
        if key not in self._packs and len(self._packs) >= PACKS_MAX:
            key = ""
        return self._packs.setdefault(key, StoreCounters())

    def _note_minute(self) -> None:
        now_ms = self.clock()
        if not self._history or now_ms - self._history[-1].time_ms >= MINUTE_MS:
            self._history.append(_Moment(now_ms, _copies(self.by_purpose)))


def _copies(counters: Mapping[Purpose, StoreCounters]) -> dict[Purpose, StoreCounters]:
    return {purpose: each.copy() for purpose, each in counters.items()}
