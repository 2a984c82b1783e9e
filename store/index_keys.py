"""Index keys: under which hashes a record is found, many records at a time.

    topic#uniqueId   topic#key (for each word of KEYS)   topic#T#tag        as Apache RocketMQ 5.5 writes them

The hash is the absolute value of Java's String.hashCode, 0 for its least value. Java's hash of a + b is
hash(a) * 31^len(b) + hash(b), so a topic's part is worked out once, and the keys of one length of a whole chunk of
records are hashed together as columns of one array: 50 ns a key instead of 3 us.
A rolled back record has no key; half messages have.
Source: IndexService.java, IndexFile.java, Apache RocketMQ 5.3; tag entries seen in 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thermocline.remoting.properties import KEY_SEPARATOR, PropertyName, find_property
from thermocline.remoting.string_hash import java_string_hash
from thermocline.remoting.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

KEY_MARK = "#"
TAG_MARK = "#T#"
MULTIPLIER = 31

_UNIQUE_KEY = PropertyName.UNIQUE_KEY.encode()
_KEYS = PropertyName.KEYS.encode()
_TAGS = PropertyName.TAGS.encode()
_SEPARATOR = KEY_SEPARATOR.encode()
_MASK = (1 << 32) - 1
_INT_MIN = -(1 << 31)

Hashes = npt.NDArray[np.int32]


def key_hash(text: str) -> int:
    """The hash that one whole key, topic included, is filed under."""
    value = abs(java_string_hash(text))
    return 0 if value == -_INT_MIN else value


def query_text(topic: str, key: str, *, is_tag: bool) -> str:
    """The whole key of a query."""
    return f"{topic}{TAG_MARK if is_tag else KEY_MARK}{key}"


class KeyCollector:
    """Collects the keys of a chunk of records, then hashes them at once."""

    def __init__(self) -> None:
        self._prefixes: dict[tuple[str, str], int] = {}
        self.clear()

    def clear(self) -> None:
        """Begin the next chunk."""
        self._keys: list[bytes] = []
        self._prefix_hashes: list[int] = []
        self.physical_offsets: list[int] = []
        self.store_timestamps_ms: list[int] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(
        self, topic: str, properties_text: bytes, *, sys_flag: int, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Collect the keys of one record, in Apache RocketMQ's order."""
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        keys = []
        unique_key = find_property(properties_text, _UNIQUE_KEY)
        if unique_key is not None:
            keys.append(unique_key)
        words = find_property(properties_text, _KEYS)
        if words is not None:
            keys += [word for word in words.split(_SEPARATOR) if word]
        if keys:
            self._keys += keys
            self._prefix_hashes += [self._prefix_hash(topic, KEY_MARK)] * len(keys)
        tag = find_property(properties_text, _TAGS)
        if tag is not None:
            keys.append(tag)
            self._keys.append(tag)
            self._prefix_hashes.append(self._prefix_hash(topic, TAG_MARK))
        self.physical_offsets += [physical_offset] * len(keys)
        self.store_timestamps_ms += [store_timestamp_ms] * len(keys)

    def hashes(self) -> Hashes:
        """The hash of every key collected, in order."""
        values = np.zeros(len(self._keys), np.uint32)
        prefixes = np.array(self._prefix_hashes, np.int64).astype(np.uint32)
        by_length: dict[int, list[int]] = {}
        for number, key in enumerate(self._keys):
            by_length.setdefault(len(key), []).append(number)
        for length, numbers in by_length.items():
            rows = np.array(numbers)
            values[rows] = _hash_rows([self._keys[number] for number in numbers], length, prefixes[rows])
        signed = np.abs(values.astype(np.int32))
        signed[signed == _INT_MIN] = 0  # the least value has no absolute value
        return signed

    def _prefix_hash(self, topic: str, mark: str) -> int:
        value = self._prefixes.get((topic, mark))
        if value is None:
            value = self._prefixes[topic, mark] = java_string_hash(topic + mark)
        return value


def _hash_rows(keys: Sequence[bytes], length: int, prefixes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Hashes of keys of one length in bytes, each behind the text that its prefix is the hash of."""
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), length)
    powers = _powers(length)
    values: npt.NDArray[np.uint32] = (rows * powers[1:]).sum(axis=1, dtype=np.uint32) + prefixes * powers[0]
    # Other scripts: Java hashes UTF-16 units, so a key's length is not its number of bytes.
    for number in np.flatnonzero((rows > 0x7F).any(axis=1)).tolist():
        text = keys[number].decode("utf-8", "replace")
        units = len(text.encode("utf-16-be", "surrogatepass")) // 2
        scaled = int(prefixes[number]) * pow(MULTIPLIER, units, _MASK + 1)
        values[number] = (scaled + java_string_hash(text)) & _MASK
    return values


def _powers(length: int) -> npt.NDArray[np.uint32]:
    """31^length ... 31^0, modulo 2^32."""
    return np.array([pow(MULTIPLIER, exponent, _MASK + 1) for exponent in range(length, -1, -1)], np.uint32)
