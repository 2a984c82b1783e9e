"""Ledger topics: brings the topics of a slave's store to their incarnations in its master's ledger.

A slave follows its master's topics every few seconds, the ledger may be newer. For each topic of the ledger

    deleted there, live here        it is deleted here, too
    unknown here                    it is made, by the saved configuration if there is one
    of an earlier life here         that one ends
In the last two cases the log's records of the topic get their queues anew.

Nothing is open but the store. What is done twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from thermocline.broker.tables import ttl_attributes
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.offsets import LOG_START
from thermocline.store.dispatch import has_unit
from thermocline.store.files import Disk, replace_file
from thermocline.store.log import LogScan
from thermocline.store.message_store import MessageStore
from thermocline.store.state import Incarnation, TopicBirth, read_births
from thermocline.store.unit_placement import UnitPlacement
from thermocline.tiered.catalog import Catalog, TopicEntry
from thermocline.tiered.state import first_place


def later_lives(catalog: Catalog, local: MessageStore) -> list[str]:
    """Topics with a later incarnation in the ledger than in this store, and topics that this store does not have. Once
    they have that incarnation, what the store has of their queues counts for nothing."""
    return [
        topic
        for topic, entry in sorted(catalog.topics.items())
        if not entry.deleted and entry.incarnation > local.incarnations.find(topic).id
    ]


def follow_topics(
    catalog: Catalog, configs: Mapping[str, Any], local: MessageStore, disk: Disk, *, redone: Collection[str]
) -> None:
    """Do so; durable once the store is closed. `configs`: the saved topics' configurations, by name. `redone`: topics
    that `later_lives` has found, now or at an earlier try that may have been cut off.

    Raises:
        OSError, DiskFullError: The store cannot be written.
    """
    births: list[TopicBirth] = []
    for topic, entry in sorted(catalog.topics.items()):
        here, is_known = local.incarnations.find(topic), topic in local.incarnations.topics
        if topic in redone:
            local.queues.remove_topic(topic)
            local.retention.remove_queues(topic)
        if entry.deleted and entry.incarnation >= here.id and not here.deleted:
            if is_known or local.queues.of_topic(topic):
                local.incarnations.follow(topic, _life(catalog, entry, is_first=not is_known))
                local.incarnations.delete(topic)
        elif not entry.deleted and entry.incarnation > here.id:
            life = _life(catalog, entry, is_first=not is_known)
            local.incarnations.delete(topic)
            local.incarnations.follow(topic, life)
            births.append(TopicBirth(topic=topic, incarnation=life, config=_config(catalog, topic, configs)))
    if births:
        lines = [birth.encode() for birth in (*read_births(disk, local.config.topic_births_path), *births)]
        replace_file(disk, local.config.topic_births_path, b"".join(lines), keep_backup=False)
    local.incarnations.save(disk, local.config.incarnation_path)
    if redone:
        _dispatch(local, redone)


def _life(catalog: Catalog, entry: TopicEntry, *, is_first: bool) -> Incarnation:
    start_offset = LOG_START if is_first else first_place(catalog, entry.topic) or LOG_START
    return Incarnation(id=entry.incarnation, start_offset=start_offset, expired_before_ms=entry.expired_before_ms)


def _config(catalog: Catalog, topic: str, configs: Mapping[str, Any]) -> msgspec.Raw:
    ttl_ms, count = catalog.topics[topic].ttl_ms, max(catalog.queue_ends(topic), default=0) + 1
    config = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
    saved = configs.get(topic)
    if saved is not None:
        config = msgspec.structs.replace(msgspec.convert(saved, TopicConfig), topic_name=topic)
    if ttl_ms is not None:
        config.attributes = ttl_attributes(config.attributes or {}, max(0, ttl_ms))
    return msgspec.Raw(config.encode())


def _dispatch(local: MessageStore, topics: Collection[str]) -> None:
    placement = UnitPlacement(local.queues, local.config)
    for record in LogScan(local.commit_log.files, local.commit_log.min_offset):
        if (
            record.topic in topics
            and has_unit(record.sys_flag)
            and local.incarnations.is_live(record.topic, record.physical_offset)
        ):
            placement.place(local.queues.find_or_create(record.topic, record.queue_id), record)
