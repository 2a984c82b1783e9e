"""Promises: the answers that a broker gave to its clients, as plain lists, and the effects that are still open.

A message is `written` when its put has returned and `acknowledged` when it may not be lost any more: by the death of
the process, or by that of the machine, once it was flushed. A change that was cut off (`pending`) has happened or not;
both are right, and `settle` takes over which.

It can be pickled: a process that is to be killed leaves it behind, as it was before each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.catalog.catalog import Catalog

KEYS_USED = ("k0", "k1", "k2")


@dataclass(slots=True)
class Message:
    """One message. `queue_offset`, `store_ms` and `record` are what the put has returned; before that, None."""

    body: bytes
    queue_offset: int | None = None
    store_ms: int | None = None
    record: bytes | None = None
    is_durable: bool = False

    @property
    def key(self) -> str:
        """Its key, by the number that its body begins with."""
        return KEYS_USED[int(self.body.split(b"/")[0]) % len(KEYS_USED)]


@dataclass(slots=True)
class Topic:
    """One life of a topic's name."""

    ttl_ms: int | None = None
    fixed_cut_ms: int = 0
    queues: dict[int, list[Message]] = field(default_factory=dict)
    floors: dict[int, int] = field(default_factory=dict)
    """Queue -> the offset behind all that were given out before its disk was lost."""

    def cut_ms(self, now_ms: int) -> int:
        """The store time before which nothing is there."""
        return self.fixed_cut_ms if self.ttl_ms is None else max(self.fixed_cut_ms, now_ms - self.ttl_ms)


@dataclass(slots=True)
class Making:
    """A topic is being made."""

    name: str
    ttl_ms: int | None


@dataclass(slots=True)
class Deleting:
    """A topic is being deleted."""

    name: str


@dataclass(slots=True)
class ChangingTtl:
    """A topic is being given another time to live, since `began_ms`."""

    name: str
    ttl_ms: int | None
    began_ms: int


@dataclass(frozen=True, slots=True)
class Pinned:
    """A reader has pinned a version, and may read these objects until then."""

    pin_id: str
    until_ms: int
    object_keys: frozenset[str]


@dataclass
class Promises:
    """All topics of a broker."""

    topics: dict[str, Topic] = field(default_factory=dict)
    pending: Making | Deleting | ChangingTtl | None = None
    pins: list[Pinned] = field(default_factory=list)
    last_body: int = 0
    now_ms: int = 0
    """When it was last noted."""
    is_promoted: bool = False
    """The disk is a slave's, and the next process its set's master."""
    is_recovering: bool = False
    """The disk was lost: the next process recovers from the bucket, unless that is done."""

    def next_body(self, size_bytes: int) -> bytes:
        """A body like no other."""
        self.last_body += 1
        return f"{self.last_body}/".encode().ljust(size_bytes, b".")

    def queue(self, topic: str, queue_id: int) -> list[Message]:
        """The messages of a queue, in order."""
        return self.topics[topic].queues.setdefault(queue_id, [])

    def messages(self) -> list[Message]:
        """All of them."""
        return [message for topic in self.topics.values() for queue in topic.queues.values() for message in queue]

    def flushed(self) -> None:
        """Everything that was written is durable."""
        for message in self.messages():
            message.is_durable = message.is_durable or message.record is not None

    def disk_lost(self, catalog: Catalog) -> None:
        """What is not committed may be lost; no offset that was given out is given out again."""
        self.is_recovering = True
        for name, topic in self.topics.items():
            ends = catalog.queue_ends(name)
            for queue_id, messages in topic.queues.items():
                offsets = [message.queue_offset for message in messages if message.queue_offset is not None]
                topic.floors[queue_id] = max([topic.floors.get(queue_id, 0), *(offset + 1 for offset in offsets)])
                for message in messages:
                    end = ends.get(queue_id, 0)
                    message.is_durable = message.queue_offset is not None and message.queue_offset < end
                    if not message.is_durable:
                        message.record = None  # it was written, and is not any more

    def slave_is_left(self, catalog: Catalog, *, log_end: int) -> None:
        """The master is lost, and a slave has its log up to there: what is not committed either is lost."""
        self.is_promoted = True
        for name, topic in self.topics.items():
            ends = catalog.queue_ends(name)
            for queue_id, messages in topic.queues.items():
                for message in messages:
                    assert message.record is not None
                    assert message.queue_offset is not None
                    is_copied = decode_record(message.record).physical_offset < log_end
                    message.is_durable = is_copied or message.queue_offset < ends.get(queue_id, 0)
                    if not message.is_durable:
                        message.record = None

    def survived(self) -> None:
        """The process died, and the machine did not: what was written is there."""
        self.flushed()

    def settle(self, present: dict[str, int | None]) -> None:
        """Take over what became of a change that was cut off. `present`: topics there are, with their time to live."""
        pending, self.pending = self.pending, None
        match pending:
            case Making() if pending.name in present:
                self.topics[pending.name] = Topic(pending.ttl_ms)
            case Deleting() if pending.name not in present:
                del self.topics[pending.name]
            case ChangingTtl() if present.get(pending.name, -1) == pending.ttl_ms:
                topic = self.topics[pending.name]
                topic.fixed_cut_ms, topic.ttl_ms = topic.cut_ms(pending.began_ms), pending.ttl_ms
        assert {name: topic.ttl_ms for name, topic in self.topics.items()} == present, "topics are not as promised"
