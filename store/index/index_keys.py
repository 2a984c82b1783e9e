"""Index keys: under which hashes a record is found, many records at a time.

    topic#uniqueId   topic#key (for each word of KEYS)   topic#T#tag        as Apache RocketMQ 5.5 writes them

The hash is the absolute value of Java's String.hashCode, 0 for its least value. Java's hash of a + b is
hash(a) * 31^len(b) + hash(b), so a topic's part is worked out once, and keys of one length are hashed together as
columns of one array: 50 ns a key instead of 3 us.
A rolled back record has no key; half messages have.
Source: IndexService.java, IndexFile.java, Apache RocketMQ 5.3; tag entries seen in 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from thermocline.remoting.records.properties import KEY_SEPARATOR, NAME_END, VALUE_END, PropertyName, find_property
from thermocline.remoting.string_hash import java_string_hash

KEY_MARK = "#"
TAG_MARK = "#T#"
MULTIPLIER = 31

VALUE_END_BYTE = ord(VALUE_END)

_UNIQUE_KEY = (PropertyName.UNIQUE_KEY + NAME_END).encode()
_KEYS = (PropertyName.KEYS + NAME_END).encode()
_TAGS = (PropertyName.TAGS + NAME_END).encode()
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
    """Collects the keys of records of any look, then hashes them at once."""

    def __init__(self) -> None:
        self.record_numbers: list[int] = []
        """Of which record each key is."""
        self._keys: list[bytes] = []
        self._prefix_hashes: list[int] = []

    def add(self, topic: bytes, properties_text: bytes, *, record_number: int) -> None:
        """Collect the keys of one record, in Apache RocketMQ's order."""
        keys = self._keys
        count = len(keys)
        unique_key = _value_of(properties_text, _UNIQUE_KEY)
        if unique_key is not None:
            keys.append(unique_key)
        words = _value_of(properties_text, _KEYS)
        if words is not None:
            keys += [word for word in words.split(_SEPARATOR) if word]
        self._prefix_hashes += [_prefix_hash(topic, KEY_MARK)] * (len(keys) - count)
        tag = _value_of(properties_text, _TAGS)
        if tag is not None:
            keys.append(tag)
            self._prefix_hashes.append(_prefix_hash(topic, TAG_MARK))
        self.record_numbers += [record_number] * (len(keys) - count)

    def hashes(self) -> Hashes:
        """The hash of every key collected, in order."""
        values = np.zeros(len(self._keys), np.uint32)
        prefixes = np.array(self._prefix_hashes, np.int64).astype(np.uint32)
        by_length: dict[int, list[int]] = {}
        for number, key in enumerate(self._keys):
            by_length.setdefault(len(key), []).append(number)
        for length, numbers in by_length.items():
            rows = np.array(numbers)
            values[rows] = _hash_keys([self._keys[number] for number in numbers], length, prefixes[rows])
        return positive_hashes(values)


def hash_rows(rows: npt.NDArray[np.uint8], prefixes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Java's hash of each row of ASCII, shape (rows, length), behind the text that its prefix is the hash of."""
    powers = _powers(rows.shape[1])
    values: npt.NDArray[np.uint32] = (rows * powers[1:]).sum(axis=1, dtype=np.uint32) + prefixes * powers[0]
    return values


def positive_hashes(values: npt.NDArray[np.uint32]) -> Hashes:
    """The index entries' hashes for keys with these hashes."""
    signed = np.abs(values.astype(np.int32))
    signed[signed == _INT_MIN] = 0  # the least value has no absolute value
    return signed


def _value_of(text: bytes, mark: bytes) -> bytes | None:
    """The value of the property that `mark` begins; the same as `find_property`, at a quarter of its cost."""
    start = text.rfind(mark)
    if start < 0:
        return None
    if start == 0 or text[start - 1] == VALUE_END_BYTE:
        value_start = start + len(mark)
        end = text.find(b"\x02", value_start)
        value = text[value_start:] if end < 0 else text[value_start:end]
        if value:
            return value
    # The mark stands within another value, or before an empty one.
    return find_property(text, mark[:-1])


def _hash_keys(keys: Sequence[bytes], length: int, prefixes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Hashes of keys of one length in bytes, in any script."""
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), length)
    values = hash_rows(rows, prefixes)
    # Java hashes UTF-16 units, so a key's length is not its number of bytes.
    for number in np.flatnonzero((rows > 0x7F).any(axis=1)).tolist():
        text = keys[number].decode("utf-8", "replace")
        units = len(text.encode("utf-16-be", "surrogatepass")) // 2
        scaled = int(prefixes[number]) * pow(MULTIPLIER, units, _MASK + 1)
        values[number] = (scaled + java_string_hash(text)) & _MASK
    return values


@lru_cache(maxsize=65_536)
def _prefix_hash(topic: bytes, mark: str) -> int:
    """The hash of what stands before a key."""
    return java_string_hash(topic.decode("utf-8", "replace") + mark)


@lru_cache(maxsize=1_024)
def _powers(length: int) -> npt.NDArray[np.uint32]:
    """31^length ... 31^0, modulo 2^32."""
    return np.array([pow(MULTIPLIER, exponent, _MASK + 1) for exponent in range(length, -1, -1)], np.uint32)
