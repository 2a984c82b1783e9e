"""State documents: converts RocketMQ's state files in a store's `config/` to plain JSON values and back.

Members that only show when a file was written (data versions, positions in the log that the reader will not have) are
left out, so that two documents are equal when their content is. Of changed settings only the live ones are kept:
others set remotely belong to the machine.

Groups that pop: a message in flight (popped, not acknowledged) does not count as consumed, so a group's offset is
lowered to the first of those (`popped`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from thermocline.broker.settings import SETTINGS, decode_changes
from thermocline.broker.state_files import load_file
from thermocline.remoting import json_dialect
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk
from thermocline.tiered.state import snapshot as names

PoppedOffsets = Iterable[tuple[str, str, int, QueueOffset]]
"""Topic, group, queue id, and the first offset in flight."""

_CONFIG_FILES = (
    names.TOPICS,
    names.STATIC_TOPICS,
    names.GROUPS,
    names.CONSUMER_OFFSETS,
    names.DELAY_OFFSETS,
    names.REQUEST_MODES,
    names.CONSUMER_FILTERS,
    names.CONSUMER_ORDERS,
)
_VERSIONED_FILES = frozenset(
    {names.TOPICS, names.STATIC_TOPICS, names.GROUPS, names.CONSUMER_OFFSETS, names.DELAY_OFFSETS}
)
_LEFT_OUT = frozenset({"dataVersion", "groupTopicMap", "popLogOffset", "pullOffsetTable"})
_WITH_INTEGER_KEYS = frozenset(
    {names.CONSUMER_OFFSETS, names.DELAY_OFFSETS, names.CONSUMER_ORDERS, names.STATIC_TOPICS}
)


def document_paths(config: StoreConfig) -> dict[str, str]:
    """Document -> the file that it is made from."""
    paths = {name: f"{config.config_path}/{name}" for name in _CONFIG_FILES}
    paths[names.DEFAULT_TTL] = f"{config.own_path}/{names.DEFAULT_TTL}"
    paths[names.SETTINGS] = f"{config.own_path}/{names.SETTINGS}"
    return paths


def read_document(disk: Disk, path: str, name: str) -> Any:
    """The document in a file; None when there is no such file, or none that counts.

    Raises:
        CorruptDataError: The file cannot be read.
    """
    data = load_file(disk, path)
    return None if data is None else _document(name, data)


def hold_back(documents: dict[str, Any], popped: PoppedOffsets) -> dict[str, Any]:
    """The documents with groups' offsets lowered to the first message in flight; the arguments stay unchanged."""
    file = documents.get(names.CONSUMER_OFFSETS)
    if file is None:
        return documents
    offsets = dict(file.get("offsetTable", {}))
    for topic, group, queue_id, offset in popped:
        key = f"{topic}@{group}"
        queue_offsets = offsets.get(key, {})
        if queue_offsets.get(str(queue_id), 0) > offset:
            offsets[key] = {**queue_offsets, str(queue_id): offset}
    return {**documents, names.CONSUMER_OFFSETS: {**file, "offsetTable": offsets}}


def _document(name: str, data: bytes) -> Any:
    if name == names.SETTINGS:
        changed = decode_changes(data).settings
        return {key: text for key, text in sorted(changed.items()) if key in SETTINGS and SETTINGS[key].is_live}
    if name in _WITH_INTEGER_KEYS:
        data = json_dialect.quote_integer_keys(data)
    try:
        value = json_dialect.loads(data)
    except InvalidRequestError as error:
        if name == names.CONSUMER_FILTERS:
            return None  # as the broker passes it over: nothing depends on it
        raise CorruptDataError("a state file cannot be read", file=name, reason=str(error)) from error
    return {key: member for key, member in value.items() if key not in _LEFT_OUT}


def encode_document(name: str, document: Any, *, now_ms: int) -> bytes:
    """The file that a document was made from, newer than any that there was."""
    if name == names.SETTINGS:
        return msgspec.json.encode({"settings": document})
    if name in _VERSIONED_FILES:
        version = {"counter": 1, "stateVersion": 0, "timestamp": now_ms}
        return msgspec.json.encode({"dataVersion": version, **document})
    return msgspec.json.encode(document)
