"""A store that runs, is cut off and recovers, beside a plain list of the messages that were put into it.

One `Trial` is one seed: several runs of one store on a simulated disk, each ended by a power cut, a kill or a stop, at
a random step. After each the store recovers and is compared with the list:

  - A queue serves, from its first offset on, exactly the messages that were put, in order, each once.
  - Nothing is lost that a flush had covered when it returned; what is lost is the end of the log, no message before one
    that is kept.
  - Offsets go on where what is kept ends: none is skipped, none names two messages.
  - A topic whose deletion had returned is empty; one that was made again holds only what came after.
  - Recovery began no earlier than the last round of `sync_derived` that had returned.
  - Every log file has its full length, the abort mark is there if the store was open, the identity is the same.
  - The index, built on to the end, finds each message under its unique id exactly once, and began no earlier than its
    last checkpoint that had returned.
On the way log files are deleted by retention, syncs fail, the disk is full for a while, and after a stop whatever is
derived may be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from tests.store.store_parts import add_topic, delete_topic
from thermocline.remoting.errors import MessageTooLargeError, UnavailableError
from thermocline.remoting.records.message_record import iterate_records
from thermocline.store.config.store_config import FlushDiskType, StoreConfig
from thermocline.store.files.disk import BACKUP_SUFFIX
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.index.index_service import IndexService
from thermocline.store.log.message_draft import GetStatus, MessageDraft, PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import ConsumeQueue
from thermocline.store.retention import RetentionGate
from thermocline.store.state.checkpoint import StoreCheckpoint

TOPICS = ("orders", "payments", "a-rather-long-topic-name-so-that-names-cross-sector-borders")
QUEUES = 3
BODY_SIZES = (0, 10, 100, 100, 100, 400, 1_500)
STEPS_MAX = 160


class ProcessDied(BaseException):
    """The broker stops without a word; the machine does not."""


UNKNOWN_OFFSET = 1 << 62
"""Of a message whose put was cut off: behind everything else, wherever it is."""


@dataclass(eq=False)
class Message:
    """One message of the list."""

    topic: str
    queue_id: int
    number: int
    body: bytes
    queue_offset: int
    physical_offset: int = UNKNOWN_OFFSET

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
    log_min_offset: int = 0
    """Messages below it may be gone by retention."""
    deleting: str | None = None
    """A topic whose deletion was begun and has not returned."""
    recovery_offset: int = 0
    """From the last round of sync_derived that returned."""
    index_offset: int = 0
    """From the last checkpoint of the index that returned."""
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

    def __init__(self, seed: int, *, ignored_sites: Collection[str] = (), run_count: int = 4) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(ignored_sites=ignored_sites)
        self.model = Model()
        self.now_ms = 1_000_000
        self.number = 0
        self.run_count = run_count
        self.cut_count = 0
        self.sites: set[str] = set()
        """Sync sites that were used."""
        self.config = StoreConfig(
            root_path="/store",
            log_file_bytes=self.random.choice((4_096, 8_192)),
            queue_file_bytes=20 * 16,
            index_slot_count=16,
            index_entry_count=24,
            open_queue_files_max=4,
            file_reserved_ms=60,
            delete_when_hours=(),
            flush_disk_type=self.random.choice(list(FlushDiskType)),
        )

    def run(self) -> None:
        """Run the store `run_count` times. AssertionError, or an error of the store's, if its content is wrong."""
        for _ in range(self.run_count):
            self.live()
        store = self.open()
        index = self.open_index(store)
        self.check(store, index)
        index.close()
        store.close()
        self.sites |= set(self.disk.sync_counts)

    # -- one life --------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Open, check, work for a while, end somehow."""
        end = self.random.choices(("cut", "kill", "close"), (6, 2, 2))[0]
        if end != "close":
            self.disk.cut_at_step = self.disk.step_count + self.random.randrange(1, STEPS_MAX)
        is_open = was_open = False
        try:
            store = self.open()
            is_open = was_open = True
            index = self.open_index(store)
            self.check(store, index)
            while self.disk.cut_at_step is not None or self.random.random() < 0.97:
                self.work(store, index)
            self.index_built(index, write_slots=True)
            is_open = False
            store.close()
            self.derived(store)
        except PowerCut:
            pass
        except ProcessDied:
            end = "kill"
        if end == "kill":
            self.disk.revive()
        elif end == "cut" or self.random.random() < 0.5:
            self.sites |= set(self.disk.sync_counts)
            self.disk = self.disk.after_power_cut(self.random)
            self.cut_count += 1
        if is_open:
            assert self.disk.exists(self.config.abort_path), "the abort mark is gone"
        if end != "cut":
            self.delete_derived(was_open=was_open)

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

    def open_index(self, store: MessageStore) -> IndexService:
        """The index process, which here is the same one."""
        return IndexService.open(
            self.disk,
            self.config,
            log_end_offset=store.commit_log.append_offset,
            was_clean=store.recovery_report.was_clean,
            clock=lambda: self.now_ms,
        )

    def work(self, store: MessageStore, index: IndexService) -> None:
        """One random thing that a broker does, or that happens to it."""
        self.now_ms += self.random.choice((0, 1, 7))
        self.disk.now_ms = self.now_ms
        kind = self.random.random()
        if kind < 0.58:
            self.put(store, 1)
        elif kind < 0.66:
            self.put(store, self.random.randrange(2, 5))
        elif kind < 0.74:
            store.flush.wait(store.commit_log.append_offset, self.flush_answered)
        elif kind < 0.82:
            self.tick(store)
        elif kind < 0.86:
            self.sync_derived(store)
        elif kind < 0.91:
            index.build(store.commit_log.flush_offset)
        elif kind < 0.93:
            self.index_built(index, write_slots=False)
        elif kind < 0.95:
            self.delete_old(store, index)
        elif kind < 0.965:
            self.add_topic(store)
        elif kind < 0.98:
            self.delete_topic(store)
        elif kind < 0.993:
            self.fill_disk(store)
        else:
            self.fail_flush(store)

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
            messages.append(Message(topic, queue_id, self.number, body, queue_offset))
        # Before the call: a cut in the middle of it may leave the messages behind.
        for message in messages:
            self.model.put(message)
        try:
            results = store.put_batch(drafts)
        except (UnavailableError, MessageTooLargeError) as error:
            self.model.keep(len(self.model.log) - count)
            if isinstance(error, UnavailableError):
                raise
            return
        for message, result in zip(messages, results, strict=True):
            assert result.queue_offset == message.queue_offset, "an offset was skipped or used twice"
            message.physical_offset = result.physical_offset

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

    def tick(self, store: MessageStore) -> None:
        """Queue files are made ahead by a helper thread, or not; a whole round may fall between its steps."""
        maker = store.queue_file_maker
        orders = maker.order(self.random.randrange(3))
        maker.make(orders)
        if orders and self.random.random() < 0.3:
            self.sync_derived(store)
        maker.take_orders(orders)
        store.tick()

    def sync_derived(self, store: MessageStore) -> None:
        """A round with puts between its slices."""
        sync = store.begin_derived_sync(queues_per_slice=1)
        while not sync.advance():
            if self.random.random() < 0.3:
                self.put(store, 1)
        durable_count = len(self.model.log)
        sync.commit()
        store.end_derived_sync(sync, committed=True)
        self.model.durable_count = max(self.model.durable_count, durable_count)
        self.model.recovery_offset = store.recovery_offset

    def index_built(self, index: IndexService, *, write_slots: bool) -> None:
        """A checkpoint of the index."""
        index.checkpoint(write_slots=write_slots)
        self.model.index_offset = index.durable_offset

    def delete_old(self, store: MessageStore, index: IndexService) -> None:
        """Local retention."""
        gate = RetentionGate(index_offset=index.durable_offset)
        plan = store.retention.plan(gate, now_ms=self.now_ms, hour=4)
        self.model.log_min_offset = max(self.model.log_min_offset, store.commit_log.min_offset)
        if self.random.random() < 0.9:
            store.retention.execute(plan)
        index.delete_before(store.commit_log.min_offset)

    def fill_disk(self, store: MessageStore) -> None:
        """The disk is full for a while: what is refused has left no trace."""
        self.disk.is_full = True
        for _ in range(self.random.randrange(12)):
            with suppress(UnavailableError):
                self.put(store, 1)
            store.tick()
        self.disk.is_full = False
        store.tick()
        assert store.commit_log.refusal is None

    def fail_flush(self, store: MessageStore) -> None:
        """A sync of the log fails: no message is acknowledged as durable, and no further message is accepted."""
        if store.commit_log.flush_offset == store.commit_log.append_offset:
            return
        answers: list[PutStatus] = []
        self.disk.fail_syncs.add(SyncSite.LOG_FLUSH)
        store.flush.wait(store.commit_log.append_offset, answers.append)
        self.disk.fail_syncs.clear()
        assert answers == [PutStatus.SERVICE_NOT_AVAILABLE]
        store.flush.wait(store.commit_log.append_offset, answers.append)
        assert answers == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
        assert store.commit_log.is_failed
        raise ProcessDied

    def delete_derived(self, *, was_open: bool) -> None:
        """Remove files that can be rebuilt. Not the queue ends of a recovery that was interrupted."""
        config, kind = self.config, self.random.random()
        if kind < 0.1:
            self.disk.remove_tree(config.consume_queue_path)
            self.model.recovery_offset = 0
        elif kind < 0.2 and self.disk.exists(config.consume_queue_path):
            self.model.recovery_offset = 0
            for topic in self.disk.list_directory(config.consume_queue_path):
                for queue_id in self.disk.list_directory(f"{config.consume_queue_path}/{topic}"):
                    if self.random.random() < 0.3:
                        self.disk.remove_tree(f"{config.consume_queue_path}/{topic}/{queue_id}")
        elif kind < 0.3:
            self.disk.remove_tree(config.index_path)
            self.model.index_offset = 0
        elif kind < 0.4 and self.disk.exists(config.index_checkpoint_path):
            self.disk.remove(config.index_checkpoint_path)
            self.model.index_offset = 0
        elif kind < 0.5 and self.disk.exists(config.checkpoint_path):
            self.disk.remove(config.checkpoint_path)
            self.model.queue_timestamp_ms = 0
        elif kind < 0.6 and self.disk.exists(config.identity_path):
            self.disk.remove(config.identity_path)
            self.model.store_id = None
        elif kind < 0.7 and was_open:
            for path in (config.queue_ends_path, config.queue_ends_path + BACKUP_SUFFIX):
                if self.disk.exists(path):
                    self.disk.remove(path)
            self.model.recovery_offset = 0
        else:
            return
        self.disk.sync_everything()

    def add_topic(self, store: MessageStore) -> None:
        """Make a topic, or make it again."""
        topic = self.random.choice(TOPICS)
        if store.incarnations.is_deleted(topic):
            add_topic(store, topic)

    def delete_topic(self, store: MessageStore) -> None:
        """Delete a topic."""
        topic = self.random.choice(TOPICS)
        self.model.deleting = topic
        delete_topic(store, topic)
        self.model.deleting = None
        self.model.drop_topic(topic)

    # -- looking ---------------------------------------------------------------------------------------------------

    def ends(self) -> dict[tuple[str, int], int]:
        """Every queue's end by the list."""
        ends: dict[tuple[str, int], int] = {}
        for message in self.model.log:
            ends[message.key] = message.queue_offset + 1
        return ends

    def check(self, store: MessageStore, index: IndexService) -> None:
        """Compare the recovered store with the list, and cut the list to what was kept."""
        model = self.model
        if model.deleting is not None and store.incarnations.is_deleted(model.deleting):
            model.drop_topic(model.deleting)
        model.deleting = None
        assert store.commit_log.min_offset <= max(model.log_min_offset, store.recovery_report.append_offset)
        served = {(queue.topic, queue.queue_id): list(serve(store, queue)) for queue in store.queues}
        places = {record.number: record.physical_offset for records in served.values() for record in records}
        kept = 0
        while kept < len(model.log) and self.is_kept(model.log[kept], places):
            kept += 1
        assert kept >= model.durable_count, "a flushed message is gone"
        model.keep(kept)
        for queue in store.queues:
            key = queue.topic, queue.queue_id
            found = [(record.number, record.body) for record in served[key]]
            messages = model.of_queue(key)
            first = len(messages) - len(found)
            assert found == [(message.number, message.body) for message in messages[first:]], "not what was put"
            assert all(message.physical_offset < model.log_min_offset for message in messages[:first]), (
                "messages are gone"
            )
            assert queue.next_offset == self.ends().get(key, 0), "the queue's end is wrong"
        assert set(self.ends()) <= set(served), "a queue is forgotten"
        for message in model.log:
            message.physical_offset = places.get(message.number, message.physical_offset)
        self.check_files(store)
        self.check_index(store, index)

    def is_kept(self, message: Message, places: dict[int, int]) -> bool:
        """Whether it survived, or is gone by retention."""
        return message.number in places or message.physical_offset < self.model.log_min_offset

    def check_index(self, store: MessageStore, index: IndexService) -> None:
        """Build it to the end; each message is filed once."""
        assert index.next_offset >= self.model.index_offset, "the index began too early"
        while index.build(store.commit_log.flush_offset):
            continue
        for message in self.model.log:
            if message.physical_offset >= self.model.log_min_offset:
                found = index.query(message.topic, f"u{message.number}", begin_ms=0, end_ms=1 << 40, count_max=32)
                mine = [
                    offset
                    for offset in found
                    if offset >= store.commit_log.min_offset
                    and store.read_record(offset).unique_key == f"u{message.number}"
                ]
                assert mine == [message.physical_offset], "the index does not find a message once"

    def check_files(self, store: MessageStore) -> None:
        """What is promised beside the messages."""
        report, model = store.recovery_report, self.model
        assert report.scan_start_offset >= model.recovery_offset, "recovery is not bounded"
        for name in self.disk.list_directory(self.config.commit_log_path):
            size_bytes = self.disk.size_bytes(f"{self.config.commit_log_path}/{name}")
            assert size_bytes == self.config.log_file_bytes, "a log file is short"
        checkpoint = StoreCheckpoint.load(self.disk, self.config.checkpoint_path)
        assert checkpoint.queue_timestamp_ms >= model.queue_timestamp_ms, "the checkpoint went back"
        assert model.store_id in (None, store.identity.store_id), "the store is another one"
        model.store_id = store.identity.store_id


@dataclass(frozen=True, slots=True)
class Served:
    """One message as a consumer gets it."""

    number: int
    body: bytes
    physical_offset: int


def serve(store: MessageStore, queue: ConsumeQueue) -> Iterator[Served]:
    """Every message of a queue."""
    offset = queue.min_offset
    while True:
        result = store.get(queue.topic, queue.queue_id, offset, count_max=8, bytes_max=4_096)
        if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return
        assert result.status is GetStatus.FOUND, result.status
        for buffer in result.buffers:
            for record in iterate_records(buffer):
                assert (record.topic, record.queue_id) == (queue.topic, queue.queue_id)
                assert record.queue_offset == offset, "offsets are not in order"
                offset += 1
                assert record.unique_key is not None
                yield Served(int(record.unique_key[1:]), record.body, record.physical_offset)
        assert offset == result.next_begin_offset


@contextmanager
def seed_shown(seed: int) -> Iterator[None]:
    """Add the seed to whatever fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed={seed}")
        raise
