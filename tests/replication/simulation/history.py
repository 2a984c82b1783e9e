"""History: what a replica set has promised, and whether it keeps it.

The history has the one log that the set has: every message put at its master, in order, with the log's bytes. When
another broker becomes the master, or a master has lost the end of its log, the history is cut to what that one has.

A promise is about the log up to an offset: a send answered as stored on so many brokers, or a seal. It names its
holders, the brokers that had all of that when it was made. It holds while no more holders are lost than the set can
lose, one fewer than were requested.

check                found
holders              a send is answered before enough brokers have the message
confirmed            the confirmed offset is above what enough slaves have reported
kept                 a broker comes back without what it had reported
bytes                a slave's log differs from its master's
lost                 a new master lacks what was promised
bucket               a new master's log ends before what may be in the bucket
order                a queue's offsets have a gap, or one of them is given out twice
fork                 a reader gets another message than the history has at that offset
back                 a reader is sent back, and no message behind was lost
offsets              a group's committed offset is below one that the broker had followed
unanswered           a send was not answered in time
behind               a slave or its tables have not caught up after the faults
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord

QueueKey = tuple[str, int]


class ViolationError(AssertionError):
    """A promise was broken. `check`: the name in the table of the module."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


@dataclass(eq=False, slots=True)
class Message:
    """One message of the log."""

    physical_offset: int
    end_offset: int
    queue: QueueKey
    queue_offset: int
    body: bytes


@dataclass(eq=False, slots=True)
class Promise:
    """The log is kept up to `end_offset`. `losses`: how many of the first holders are lost."""

    check: str
    end_offset: int
    holders: set[str]
    losses: int = 0


@dataclass
class History:
    """One run's. `slaves_needed`: slaves that have to have a message when its send is answered; 0: none has to."""

    slaves_needed: int
    log: bytearray = field(default_factory=bytearray)
    messages: list[Message] = field(default_factory=list)
    queues: dict[QueueKey, list[Message]] = field(default_factory=dict)
    promises: list[Promise] = field(default_factory=list)
    sealed_offset: int = 0
    """Up to where the log may be in the bucket: by the rules, as no tier process runs here."""
    cuts: int = 0
    """How often the log's end was lost."""
    promised_count: int = 0
    read_count: int = 0

    # -- writes --------------------------------------------------------------------------------------------------------

    def put(self, message: Message, log_bytes: bytes) -> None:
        """The master has put a message. `log_bytes`: of its log, since the end of the history's."""
        queue = self.queues.setdefault(message.queue, [])
        if message.queue_offset != len(queue):
            raise ViolationError("order", f"{message.queue} goes on at {message.queue_offset}, not {len(queue)}")
        queue.append(message)
        self.messages.append(message)
        self.log += log_bytes
        if message.end_offset != len(self.log):
            raise ViolationError("order", f"a message ends at {message.end_offset}, the log at {len(self.log)}")

    def promise(self, check: str, end_offset: int, holders: set[str], *, losses: int = 0) -> None:
        """The set promises to keep the log up to there."""
        if losses <= self.slaves_needed:
            self.promises.append(Promise(check, end_offset, holders, losses))
        self.promised_count += 1

    def holder_lost(self, name: str, *, from_offset: int) -> None:
        """A broker has lost its log from there on."""
        for promise in self.promises:
            if promise.end_offset > from_offset and name in promise.holders:
                promise.holders.discard(name)
                promise.losses += 1
        self.promises = [promise for promise in self.promises if promise.losses <= self.slaves_needed]

    def goes_on_at(self, name: str, *, start_offset: int, end_offset: int) -> None:
        """The log goes on at a broker that has it from `start_offset` to `end_offset`."""
        for promise in self.promises:
            if promise.end_offset > end_offset:
                raise ViolationError(
                    promise.check,
                    f"{name} ends at {end_offset}, promised is {promise.end_offset} by {sorted(promise.holders)}",
                )
        if end_offset < len(self.log):
            self.cuts += 1
            del self.log[end_offset:]
            while self.messages and self.messages[-1].end_offset > end_offset:
                message = self.messages.pop()
                queue = self.queues.get(message.queue)
                if queue and queue[-1] is message:  # else the queue has begun anew since
                    queue.pop()
        for key, queue in list(self.queues.items()):
            if queue and queue[-1].physical_offset < start_offset:
                del self.queues[key]  # the broker has never had a message of this queue: it begins anew there

    # -- reads ---------------------------------------------------------------------------------------------------------

    def check_bytes(self, name: str, start: PhysicalOffset, data: bytes) -> None:
        """A broker has these bytes of the log."""
        if self.log[start : start + len(data)] != data:
            raise ViolationError("bytes", f"{name} differs in [{start}, {start + len(data)})")

    def check_read(self, name: str, queue: QueueKey, record: MessageRecord) -> None:
        """A reader has got a message."""
        messages = self.queues.get(queue, [])
        self.read_count += 1
        if record.queue_offset >= len(messages):
            raise ViolationError("fork", f"{name} serves {queue} {record.queue_offset}, which the log does not have")
        expected = messages[record.queue_offset]
        if (expected.physical_offset, expected.body) != (record.physical_offset, record.body):
            raise ViolationError("fork", f"{name} serves another message at {queue} {record.queue_offset}")

    def end_of(self, queue: QueueKey) -> QueueOffset:
        """Where a queue ends."""
        return QueueOffset(len(self.queues.get(queue, ())))
