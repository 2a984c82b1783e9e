"""What tests of the store share: a small store on any disk, and messages for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.clock import Clock
from tests.store.inline_executor import InlineExecutor
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import Disk
from thermocline.store.log.message_draft import GetStatus, MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import ConsumeQueue

ROOT = "/store"
LOG_FILE_BYTES = 4_096
UNITS_PER_FILE = 16


def small_config(root_path: str = ROOT, **changes: Any) -> StoreConfig:
    """Small files, so that rolls are met."""
    settings: dict[str, Any] = {
        "root_path": root_path,
        "log_file_bytes": LOG_FILE_BYTES,
        "queue_file_bytes": 20 * UNITS_PER_FILE,
        "index_slot_count": 16,
        "index_entry_count": 32,
    }
    return StoreConfig(**settings | changes)


def open_store(
    disk: Disk, config: StoreConfig | None = None, *, clock: Callable[[], int] | None = None
) -> MessageStore:
    """Open a small store; log files are made in the calling thread."""
    store = MessageStore.open(
        config or small_config(),
        disk=disk,
        clock=clock or Clock(1_000_000),
        allocator_executor=InlineExecutor(),
        process_id=7,
    )
    store.store_host = ("10.0.0.1", 10911)
    return store


def draft(
    topic: str = "orders", queue_id: int = 0, body: bytes = b"hello", *, properties: bytes = b"", **changes: Any
) -> MessageDraft:
    """A message."""
    fields: dict[str, Any] = {
        "topic": topic,
        "queue_id": queue_id,
        "body": body,
        "properties_text": properties,
        "born_timestamp_ms": 999_999,
        "born_host": ("10.0.0.2", 4000),
    }
    return MessageDraft(**fields | changes)


def records_of(store: MessageStore, queue: ConsumeQueue, *, count_max: int = 7) -> Iterator[MessageRecord]:
    """Every message of a queue, got in several pieces; offsets must be without gaps but where there is no message."""
    offset = queue.min_offset
    while True:
        result = store.get(queue.topic, queue.queue_id, offset, count_max=count_max, bytes_max=1 << 20)
        if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return
        # Offsets without a message are stepped over.
        assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE), result.status
        for buffer in result.buffers:
            for record in iterate_records(buffer):
                assert offset <= record.queue_offset < result.next_begin_offset
                yield record
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset


def bodies_of(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue's messages; none for a queue that does not exist."""
    queue = store.queues.find(topic, queue_id)
    return [] if queue is None else [record.body for record in records_of(store, queue)]


def add_topic(store: MessageStore, topic: str) -> None:
    """Begin a topic's incarnation if its last one was deleted, or it never had one; durable on return."""
    store.incarnations.create(topic, start_offset=store.commit_log.append_offset)
    store.incarnations.save(store._disk, store.config.incarnation_path)


def delete_topic(store: MessageStore, topic: str) -> None:
    """End a topic's incarnation, durable on return, then remove its queues, as the broker's topic table does."""
    store.incarnations.delete(topic)
    store.incarnations.save(store._disk, store.config.incarnation_path)
    store.queues.remove_topic(topic)
    store.retention.remove_queues(topic)
