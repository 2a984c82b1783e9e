"""A store that lives, is cut off and comes back, beside a plain list of what was put into it.

One `Trial` is one seed: several lives of one store on a simulated disk, each ended by a power cut, a kill or a stop, at a
random step. After each the store recovers and is compared with the list:

  - What is served of a queue is, from its first offset on, exactly what was put, in order, each message once.
  - Nothing is lost that a flush had covered when it returned; what is lost is the end of the log, no message before one
    that is kept.
  - Offsets go on where what is kept ends: none is skipped, none names two messages.
  - A topic whose deletion had returned is empty; one that was made again holds only what came after.
  - Recovery began no earlier than the last round of `sync_derived` that had returned.
  - Every log file has its full length, the abort mark is there if the store was open, the identity is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import ParamSpec, TypeVar

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.remoting.message_record import iterate_records
from thermocline.store.checkpoint import StoreCheckpoint
from thermocline.store.message_draft import GetStatus, MessageDraft, PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.store_config import StoreConfig

P = ParamSpec("P")
T = TypeVar("T")

TOPICS = ("orders", "payments", "a-rather-long-topic-name-so-that-names-cross-sector-borders")
QUEUES = 3
BODY_SIZES = (0, 10, 100, 100, 100, 400, 1_500)
STEPS_MAX = 160


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - an executor hands every failure on
            future.set_exception(error)
        return future


@dataclass(eq=False)
class Message:
    """One message of the list."""

    topic: str
    queue_id: int
    number: int
    body: bytes
    queue_offset: int
    end_offset: int

    @property
    def key(self) -> tuple[str, int]:
        """Its queue."""
        return self.topic, self.queue_id


@dataclass
class Model:
    """What should be there."""

    log: list[Message] = field(default_factory=list)
    """Messages of live topics, in the order of the log."""
    durable_count: int = 0
    """How many of the first of them a flush has covered."""
    minimums: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """Queue ends by what is in `log`, also where messages are gone by retention."""
    deleting: str | None = None
    """A topic whose deletion was begun and has not returned."""
    recovery_offset: int = 0
    """From the last round of sync_derived that returned."""
    queue_timestamp_ms: int = 0
    store_id: str | None = None

    def put(self, message: Message) -> None:
        """It was written."""
        self.log.append(message)

    def of_queue(self, key: tuple[str, int]) -> list[Message]:
        """Messages of one queue."""
        return [message for message in self.log if message.key == key]

    def drop_topic(self, topic: str) -> None:
        """It was deleted."""
        self.durable_count = sum(1 for message in self.log[: self.durable_count] if message.topic != topic)
        self.log = [message for message in self.log if message.topic != topic]

    def keep(self, count: int) -> None:
        """A cut left this many messages."""
        del self.log[count:]
        self.durable_count = min(self.durable_count, count)


class Trial:
    """One seed."""

    def __init__(self, seed: int, *, ignored_sites: Collection[str] = (), lives: int = 4) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(ignored_sites=ignored_sites)
        self.model = Model()
        self.now_ms = 1_000_000
        self.number = 0
        self.lives = lives
        self.config = StoreConfig(
            root_path="/store",
            log_file_bytes=8_192,
            queue_file_bytes=20 * 16,
            index_slot_count=16,
            index_entry_count=24,
            open_queue_files_max=4,
        )
        self.disk.make_directory("/store")
        self.disk.sync_everything()

    def run(self) -> None:
        """All lives. AssertionError, or an error of the store's, when something is not as it should be."""
        for _ in range(self.lives):
            self.live()
        store = self.open()
        self.check(store)
        store.close()

    # -- one life --------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Open, check, work for a while, end somehow."""
        end = self.random.choices(("cut", "kill", "close"), (6, 2, 2))[0]
        steps = self.random.randrange(1, STEPS_MAX)
        if end != "close":
            self.disk.cut_at_step = self.disk.step_count + steps
        was_open = False
        with suppress(PowerCut):
            store = self.open()
            was_open = True
            self.check(store)
            while self.disk.cut_at_step is not None or self.random.random() < 0.97:
                self.work(store)
            was_open = False
            store.close()
            self.flushed()
            self.derived(store)
        if end == "kill":
            self.disk.revive()
        elif end == "cut" or self.random.random() < 0.5:
            self.disk = self.disk.after_power_cut(self.random)
        if was_open:
            assert self.disk.exists(self.config.abort_path), "the abort mark is gone"

    def open(self) -> MessageStore:
        """Recover."""
        store = MessageStore.open(
            self.config,
            disk=self.disk,
            clock=lambda: self.now_ms,
            allocator_executor=InlineExecutor(),
            make_id=lambda: f"{self.random.getrandbits(64):016x}",
            process_id=1,
        )
        store.store_host = ("10.0.0.1", 10911)
        return store

    def work(self, store: MessageStore) -> None:
        """One random thing that a broker does."""
        self.now_ms += self.random.choice((0, 1, 7))
        self.disk.now_ms = self.now_ms
        kind = self.random.random()
        if kind < 0.62:
            self.put(store, 1)
        elif kind < 0.70:
            self.put(store, self.random.randrange(2, 5))
        elif kind < 0.80:
            store.flush.wait(store.commit_log.append_offset, self.flush_answered)
        elif kind < 0.90:
            store.tick()
        elif kind < 0.95:
            store.sync_derived()
            self.derived(store)
        elif kind < 0.975:
            self.add_topic(store)
        else:
            self.delete_topic(store)

    def put(self, store: MessageStore, count: int) -> None:
        """Put messages, into one topic."""
        live = [topic for topic in TOPICS if not store.incarnations.is_deleted(topic)]
        if not live:
            return
        topic = self.random.choice(live)
        drafts, messages = [], []
        offset_of = {key: end for key, end in self.ends().items() if key[0] == topic}
        for _ in range(count):
            queue_id = self.random.randrange(QUEUES)
            self.number += 1
            body = f"{self.number}:".encode().ljust(self.random.choice(BODY_SIZES), b"x")
            properties = f"UNIQ_KEY\x01u{self.number}\x02KEYS\x01k{self.number % 7}\x02TAGS\x01t{self.number % 3}\x02"
            drafts.append(
                MessageDraft(
                    topic=topic,
                    queue_id=queue_id,
                    body=body,
                    properties_text=properties.encode(),
                    born_timestamp_ms=self.now_ms,
                    born_host=("10.0.0.2", 4000),
                )
            )
            queue_offset = offset_of.get((topic, queue_id), 0)
            offset_of[topic, queue_id] = queue_offset + 1
            messages.append(Message(topic, queue_id, self.number, body, queue_offset, 0))
        # Before the call: a cut in the middle of it may leave the messages behind.
        for message in messages:
            self.model.put(message)
        results = store.put_batch(drafts)
        for message, result in zip(messages, results, strict=True):
            assert result.queue_offset == message.queue_offset, "an offset was skipped or used twice"
            message.end_offset = result.physical_offset + result.size_bytes

    def flush_answered(self, status: PutStatus) -> None:
        """The flush gate called back."""
        assert status is PutStatus.PUT_OK
        self.flushed()

    def flushed(self) -> None:
        """Everything put so far is durable."""
        self.model.durable_count = len(self.model.log)

    def derived(self, store: MessageStore) -> None:
        """A round of sync_derived has returned; it flushed the log too."""
        self.flushed()
        self.model.recovery_offset = store.recovery_offset
        self.model.queue_timestamp_ms = store.clock.last_ms

    def add_topic(self, store: MessageStore) -> None:
        """Make a topic, or make it again."""
        topic = self.random.choice(TOPICS)
        if store.incarnations.is_deleted(topic):
            store.add_topic(topic)

    def delete_topic(self, store: MessageStore) -> None:
        """Delete a topic."""
        topic = self.random.choice(TOPICS)
        self.model.deleting = topic
        store.delete_topic(topic)
        self.model.deleting = None
        self.model.drop_topic(topic)

    # -- looking ---------------------------------------------------------------------------------------------------

    def ends(self) -> dict[tuple[str, int], int]:
        """Every queue's end by the list."""
        ends: dict[tuple[str, int], int] = {}
        for message in self.model.log:
            ends[message.key] = message.queue_offset + 1
        return ends

    def check(self, store: MessageStore) -> None:
        """Compare the recovered store with the list, and cut the list to what was kept."""
        model = self.model
        if model.deleting is not None and store.incarnations.is_deleted(model.deleting):
            model.drop_topic(model.deleting)
        model.deleting = None
        served = {(queue.topic, queue.queue_id): list(serve(store, queue.topic, queue.queue_id)) for queue in store.queues}
        kept_numbers = {number for messages in served.values() for number, _ in messages}
        kept = 0
        while kept < len(model.log) and model.log[kept].number in kept_numbers:
            kept += 1
        assert kept >= model.durable_count, "a flushed message is gone"
        model.keep(kept)
        expected = {message.key: [] for message in model.log}
        for message in model.log:
            expected[message.key].append((message.number, message.body))
        found = {key: messages for key, messages in served.items() if messages}
        assert found == expected, "what is served is not what was put"
        for queue in store.queues:
            end = self.ends().get((queue.topic, queue.queue_id), 0)
            assert queue.next_offset == end, "the queue's end is wrong"
        self.check_files(store)

    def check_files(self, store: MessageStore) -> None:
        """What is promised beside the messages."""
        report, model = store.recovery_report, self.model
        assert report.rebuilt_queue_count or report.scan_start_offset >= model.recovery_offset, "recovery is not bounded"
        for name in self.disk.list_directory(self.config.commit_log_path):
            size_bytes = self.disk.size_bytes(f"{self.config.commit_log_path}/{name}")
            assert size_bytes == self.config.log_file_bytes, "a log file is short"
        checkpoint = StoreCheckpoint.load(self.disk, self.config.checkpoint_path)
        assert checkpoint.queue_timestamp_ms >= model.queue_timestamp_ms, "the checkpoint went back"
        assert model.store_id in (None, store.identity.store_id), "the store is another one"
        model.store_id = store.identity.store_id


def serve(store: MessageStore, topic: str, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """Number and body of every message of a queue, as a consumer gets them."""
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    offset = queue.min_offset
    while True:
        result = store.get(topic, queue_id, offset, count_max=8, bytes_max=4_096)
        if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return
        assert result.status is GetStatus.FOUND, result.status
        for buffer in result.buffers:
            for record in iterate_records(buffer):
                assert (record.topic, record.queue_id) == (topic, queue_id)
                assert record.queue_offset == offset, "offsets are not in order"
                offset += 1
                assert record.unique_key is not None
                yield int(record.unique_key[1:]), record.body
        assert offset == result.next_begin_offset


@contextmanager
def seed_shown(seed: int) -> Iterator[None]:
    """Add the seed to whatever fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed={seed}")
        raise
