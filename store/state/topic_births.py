"""Topic births: topics that were made since their two tables were last written as a whole.

File: thermocline/topicBirths, a line for each topic, appended and replaced by `broker/tables/topic_journal.py`

    3f2a77c0 {"topic":"orders","incarnation":{"id":7,...},"config":{...}}
    CRC-32 of the JSON in 8 hexadecimal digits, a space, the JSON, a line feed

A table of N topics costs N to write, so a topic that a first message makes costs a line instead; the tables follow
later, for all at once.

Rules
  - A line is durable before the topic's first message.
  - Incarnation ids give the order. A line with a higher id than the name has in the table of incarnations stands for
    topic and incarnation. With the same id the tables have the incarnation, and the topic's configuration stands
    where topics.json has none. With a lower id, or when the table has the topic as deleted, the line is of the past.
  - A reader stops at the first line that is not whole: its topic was never answered for.
  - Who reads while a broker writes reads this file before the tables: a line goes after both tables have its topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from thermocline.store.files import Disk
from thermocline.store.state.incarnation import Incarnation, TopicIncarnations

_CHECKSUM_DIGITS = 8


class TopicBirth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One topic that was made. `config`: as it stands in topics.json. `recorded_id`: of its queue ends, where it is
    another one than the incarnation's."""

    topic: str
    incarnation: Incarnation
    config: msgspec.Raw
    recorded_id: int | None = None

    def encode(self) -> bytes:
        """Its line."""
        text = msgspec.json.encode(self)
        return b"%08x %b\n" % (zlib.crc32(text), text)


class BornTopic(msgspec.Struct, frozen=True):
    """One topic after its births. `is_newer`: its configuration stands above that of topics.json."""

    config: bytes
    is_newer: bool


def read_births(disk: Disk, path: str) -> list[TopicBirth]:
    """The births in the file, in their order; none when there is no file."""
    if not disk.exists(path):
        return []
    births: list[TopicBirth] = []
    for line in disk.read(path).split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if len(checksum) != _CHECKSUM_DIGITS or checksum != b"%08x" % zlib.crc32(text):
            break
        births.append(msgspec.json.decode(text, type=TopicBirth))
    return births


def take_births(births: Iterable[TopicBirth], incarnations: TopicIncarnations) -> dict[str, BornTopic]:
    """Bring the table of incarnations up to date, and return what topics.json may lack."""
    born: dict[str, BornTopic] = {}
    for birth in births:
        topic, present = birth.topic, incarnations.find(birth.topic)
        if birth.incarnation.id > present.id:
            incarnations.adopt(topic, birth.incarnation, recorded_id=birth.recorded_id)
            born[topic] = BornTopic(bytes(birth.config), is_newer=True)
        elif birth.incarnation.id == present.id and not present.deleted:
            earlier = born.get(topic)
            born[topic] = BornTopic(bytes(birth.config), is_newer=earlier is not None and earlier.is_newer)
    return born


def with_born(table: Mapping[str, Any], born: Mapping[str, BornTopic]) -> dict[str, Any]:
    """The table of topics.json, decoded to plain values, with the topics that it lacks."""
    complete = dict(table)
    for topic, each in born.items():
        if each.is_newer or topic not in complete:
            complete[topic] = msgspec.json.decode(each.config)
    return complete
