"""Recovered store: the files of a store directory that goes on where a plan says, before any broker opens it.

    thermocline/recovering    the mark of a recovery under way: first to come, last to go
    config/*                  RocketMQ's state files, from the snapshot's documents
    thermocline/queueEnds     every queue, empty, at its first new offset
    commitlog/                one file, empty, behind all that was reserved
    thermocline/recovery.txt  what was lost, as it is printed
    thermocline/origin.json   where queues begin that the snapshot did not know
    thermocline/identity.json makes it a store; what there is before it is begun anew by the next try

Not restored: what the broker keeps for itself in the log (delayed and timed messages, open transactions, check points
of POP): it lived on the lost disk alone. Groups' offsets are those of the snapshot, in a queue of a later life of its
topic none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from thermocline.broker.state import document_paths, encode_ceiling, encode_document
from thermocline.broker.tables import ttl_attributes, ttl_ms
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset
from thermocline.remoting.topic_validation import is_internal_topic
from thermocline.store.config import StoreConfig, visible_from_ms
from thermocline.store.files import Disk, FileAllocator, make_allocator_executor, make_durable_directory, replace_file
from thermocline.store.queues import QueueEnds, TopicEnds, save_queue_ends
from thermocline.store.state import Incarnation, StoreOrigin, TopicIncarnations, load_or_make_identity, save_origin
from thermocline.tiered.state import RecoveryPlan, TopicPlan
from thermocline.tiered.state import snapshot as names

REPORT_NAME = "recovery.txt"
NOT_RESTORED = frozenset({names.DELAY_OFFSETS})


def recovering_path(config: StoreConfig) -> str:
    """The mark of a recovery under way."""
    return f"{config.own_path}/recovering"


def restored_documents(plan: RecoveryPlan, documents: Mapping[str, Any], *, is_ledger_newer: bool) -> dict[str, Any]:
    """The snapshot's documents as they hold for what the plan brings back.

    `is_ledger_newer`: it was last written to after the snapshot was taken. Its time to live is then used: the snapshot
    may hold an earlier one, by which messages would be deleted too soon.
    """
    restored = {name: document for name, document in documents.items() if name not in NOT_RESTORED}
    default_ms = restored.get(names.DEFAULT_TTL, {}).get("defaultMs", 0) or None
    topics = {topic.topic: topic for topic in plan.topics}
    table = dict(restored.get(names.TOPICS, {}).get("topicConfigTable", {}))
    for name, topic in topics.items():
        if topic.deleted:
            table.pop(name, None)
        elif name not in table:
            table[name] = msgspec.to_builtins(_config_of(topic))
        elif is_ledger_newer and topic.ttl_ms is not None:
            table[name] = _with_ttl(table[name], max(0, topic.ttl_ms), default_ms=default_ms)
    restored[names.TOPICS] = {"topicConfigTable": table}
    for name, member in ((names.CONSUMER_OFFSETS, "offsetTable"), (names.CONSUMER_ORDERS, "table")):
        kept = {
            key: queues
            for key, queues in restored.get(name, {}).get(member, {}).items()
            if _goes_on(topics, key.partition("@")[0])
        }
        # Receipts of hand-offs are kept with the offsets: a repeated receipt moves no group back.
        handed_over = {key: value for key, value in restored.get(name, {}).items() if key == "handOffs"}
        restored[name] = {member: kept, **handed_over}
    return restored


def visible_from(plan: RecoveryPlan, documents: Mapping[str, Any], *, now_ms: int) -> dict[str, int]:
    """Topic -> the store time from which on its messages are visible now, by the restored documents."""
    default_ms = documents.get(names.DEFAULT_TTL, {}).get("defaultMs", 0) or None
    table = documents[names.TOPICS]["topicConfigTable"]
    return {
        topic.topic: visible_from_ms(
            ttl_ms=ttl_ms(table[topic.topic].get("attributes") or {}, default_ms=default_ms),
            expired_before_ms=topic.expired_before_ms,
            now_ms=now_ms,
        )
        for topic in plan.topics
        if topic.topic in table
    }


def write_recovered_store(
    disk: Disk,
    config: StoreConfig,
    plan: RecoveryPlan,
    *,
    documents: Mapping[str, Any],
    origin: StoreOrigin,
    log_ceiling: PhysicalOffset,
    store_timestamp_ms: int,
    report: str,
) -> None:
    """Make the files; the directory is locked by the caller and holds nothing but the mark. Durable on return."""
    for path in (config.commit_log_path, config.consume_queue_path, config.config_path, config.staging_path):
        make_durable_directory(disk, path)
    paths = document_paths(config)
    for name, document in documents.items():
        data = encode_document(name, document, now_ms=origin.recovered_ms)
        replace_file(disk, paths[name], data, keep_backup=False)
    _incarnations(plan).save(disk, config.incarnation_path)
    save_queue_ends(
        disk,
        config.queue_ends_path,
        QueueEnds(
            recovery_offset=plan.log_offset,
            capture_offset=plan.log_offset,
            store_timestamp_ms=store_timestamp_ms,
            topics={topic.topic: _ends(topic) for topic in plan.topics if not topic.deleted},
        ).encode(),
    )
    with make_allocator_executor() as executor:
        allocator = FileAllocator(
            disk,
            directory=config.commit_log_path,
            staging=config.staging_path,
            file_bytes=config.log_file_bytes,
            executor=executor,
        )
        allocator.take_file(plan.log_offset).close()
    replace_file(disk, config.log_ceiling_path, encode_ceiling(log_ceiling), keep_backup=False)
    replace_file(disk, f"{config.own_path}/{REPORT_NAME}", report.encode(), keep_backup=False)
    save_origin(disk, config.origin_path, origin)
    load_or_make_identity(disk, config.identity_path, make_id=lambda: origin.store_id)
    disk.remove(recovering_path(config))


def _goes_on(topics: Mapping[str, TopicPlan], name: str) -> bool:
    """Whether offsets of this topic still mean what they meant at the snapshot."""
    if is_internal_topic(name):
        return False
    topic = topics.get(name)
    return topic is None or (topic.is_known and not topic.deleted)


def _with_ttl(config: Mapping[str, Any], duration_ms: int, *, default_ms: int | None) -> dict[str, Any]:
    """A topic's configuration under that time to live, 0 for ever; as it is when that is its own anyway."""
    attributes = config.get("attributes") or {}
    if (ttl_ms(attributes, default_ms=default_ms) or 0) == duration_ms:
        return dict(config)
    return {**config, "attributes": ttl_attributes(attributes, duration_ms)}


def _config_of(topic: TopicPlan) -> TopicConfig:
    """The configuration of a topic of which only messages are known."""
    count = max((queue.queue_id for queue in topic.queues), default=0) + 1
    ttl = {} if topic.ttl_ms is None else ttl_attributes({}, max(0, topic.ttl_ms))
    return TopicConfig(topic_name=topic.topic, read_queue_nums=count, write_queue_nums=count, attributes=ttl)


def _incarnations(plan: RecoveryPlan) -> TopicIncarnations:
    table = {
        topic.topic: Incarnation(
            id=topic.incarnation,
            start_offset=topic.start_offset,
            deleted=topic.deleted,
            expired_before_ms=topic.expired_before_ms,
        )
        for topic in plan.topics
        if topic.incarnation or topic.deleted or topic.expired_before_ms
    }
    return TopicIncarnations(last_id=plan.last_incarnation, table=table)


def _ends(topic: TopicPlan) -> TopicEnds:
    return TopicEnds(
        topic=topic.topic,
        incarnation_id=topic.incarnation,
        expired_before_ms=topic.expired_before_ms,
        queues=tuple((queue.queue_id, queue.next_offset, QUEUE_START, queue.next_offset) for queue in topic.queues),
    )
