"""WriteOptions: what a user may say about a write, checked once and turned into values.

Names are matched without regard to case, as Spark does; any other name is refused, but for what Spark's own writer of
streams reads (`checkpointLocation`).

    namesrvAddr     NameServer addresses, host:port, with ; between
    topic           where all messages go; else the column `topic` says it, row by row
    topics          with the column `topic`: the topics that it may name, comma separated
    producerGroup   the producer group that brokers see (without deduplication)
    batchBytes      about how many bytes travel in one request (1m)
    maxMessageBytes longer bodies are refused before anything of their Arrow batch is sent (4m, as brokers do)
    sendTimeout     bound on one request, milliseconds (10000)
    deduplicate     true: what an earlier attempt of the same task has stored is not sent again
    attemptTimeout  with deduplicate: how long a task waits for another attempt of it to end, milliseconds (300000)
    noteRetention   with deduplicate: when notes of writes that never ended are removed, milliseconds (604800000)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from thermocline.client.options import name_server_addresses
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.topic_validation import check_group, check_topic
from thermocline.spark.option_names import check_option_names, known_options

BATCH_BYTES_DEFAULT = 1 << 20
BATCH_BYTES_MAX = 2 << 20
MESSAGE_BYTES_MAX_DEFAULT = 4 << 20
SEND_TIMEOUT_MS_DEFAULT = 10_000
ATTEMPT_TIMEOUT_MS_DEFAULT = 300_000
NOTE_RETENTION_MS_DEFAULT = 7 * 24 * 3_600_000
PRODUCER_GROUP_DEFAULT = "thermocline-spark"

NAMES = (
    *("namesrvAddr", "topic", "topics", "producerGroup", "batchBytes", "maxMessageBytes", "sendTimeout"),
    *("deduplicate", "attemptTimeout", "noteRetention"),
)
OF_SPARK = ("checkpointLocation", "queryName")
"""What Spark reads of a streaming write, and passes on with the rest."""
_KNOWN = known_options((*NAMES, *OF_SPARK))
_INSTEAD = {"path": "a write goes to a topic: name it in the option topic or in the column topic"}
_SIZE = re.compile(r"(\d+)\s*([km]?)(?:i?b)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """See the module's header. Small and picklable: it travels to every task."""

    namesrv: str
    topic: str | None
    topics: tuple[str, ...]
    """The topics that are known beforehand: `topic`, or those of `topics`; empty when only rows will tell."""
    producer_group: str = PRODUCER_GROUP_DEFAULT
    batch_bytes: int = BATCH_BYTES_DEFAULT
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT
    send_timeout_ms: int = SEND_TIMEOUT_MS_DEFAULT
    deduplicate: bool = False
    attempt_timeout_ms: int = ATTEMPT_TIMEOUT_MS_DEFAULT
    note_retention_ms: int = NOTE_RETENTION_MS_DEFAULT


def write_options_from(options: Mapping[str, str]) -> WriteOptions:
    """Check all options of one write.

    Raises:
        InvalidRequestError: An option is missing or unknown, or its value is wrong; the message names it.
    """
    check_option_names(options, _KNOWN, advice=_INSTEAD)
    words = {name.lower(): value.strip() for name, value in options.items()}
    namesrv = words.get("namesrvaddr", "")
    if not namesrv:
        raise InvalidRequestError("name the NameServer: .option('namesrvAddr', 'host:9876')", option="namesrvAddr")
    name_server_addresses(namesrv)
    topic = words.get("topic")
    if topic is not None and "topics" in words:
        raise InvalidRequestError("choose one of the options topic and topics", option="topics")
    topics = (topic,) if topic is not None else _topics(words.get("topics"))
    for name in topics:
        check_topic(name)
    group = words.get("producergroup", PRODUCER_GROUP_DEFAULT)
    check_group(group)
    batch_bytes = _size_bytes(words, "batchBytes", BATCH_BYTES_DEFAULT)
    if batch_bytes > BATCH_BYTES_MAX:
        raise InvalidRequestError(
            "a request of so many bytes would be refused by brokers",
            option="batchBytes",
            value=batch_bytes,
            size_bytes_max=BATCH_BYTES_MAX,
        )
    deduplicate = words.get("deduplicate", "false").lower()
    if deduplicate not in _TRUTH:
        raise InvalidRequestError(f"{deduplicate!r} is neither true nor false", option="deduplicate")
    if _TRUTH[deduplicate] and not topics:
        raise InvalidRequestError(
            "deduplicate=true needs the topics beforehand: name them in the option topic or topics",
            option="deduplicate",
        )
    return WriteOptions(
        namesrv=namesrv,
        topic=topic,
        topics=topics,
        producer_group=group,
        batch_bytes=batch_bytes,
        message_bytes_max=_size_bytes(words, "maxMessageBytes", MESSAGE_BYTES_MAX_DEFAULT),
        send_timeout_ms=_number(words, "sendTimeout", SEND_TIMEOUT_MS_DEFAULT),
        deduplicate=_TRUTH[deduplicate],
        attempt_timeout_ms=_number(words, "attemptTimeout", ATTEMPT_TIMEOUT_MS_DEFAULT),
        note_retention_ms=_number(words, "noteRetention", NOTE_RETENTION_MS_DEFAULT),
    )


def _topics(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",")))
    if not all(topics):
        raise InvalidRequestError(f"{text!r} is no list of topics", option="topics")
    return topics


def _size_bytes(words: Mapping[str, str], name: str, default: int) -> int:
    text = words.get(name.lower())
    if text is None:
        return default
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise InvalidRequestError(f"{text!r} is no size; write 1048576 or 1m", option=name)
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def _number(words: Mapping[str, str], name: str, default: int) -> int:
    text = words.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise InvalidRequestError(f"{text!r} is no number of milliseconds", option=name)
    return int(text)
