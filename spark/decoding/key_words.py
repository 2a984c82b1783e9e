"""Rows by message key: KEYS holds a message's keys, separated by spaces; compared as whole words, exactly."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.remoting.records.properties import KEY_SEPARATOR
from thermocline.remoting.records.record_heads import Mask


def rows_with_keys(keys_column: pa.Array, wanted: Iterable[frozenset[str]]) -> Mask:
    """The rows that have, of each set of keys in `wanted`, at least one."""
    keep: Mask = np.ones(len(keys_column), np.bool_)
    words = pc.split_pattern(keys_column, KEY_SEPARATOR)
    flat, rows = pc.list_flatten(words), pc.list_parent_indices(words)
    for keys in wanted:
        hits = pc.is_in(flat, pa.array(sorted(keys), pa.string()))
        found: Mask = np.zeros(len(keys_column), np.bool_)
        found[rows.filter(hits).to_numpy()] = True
        keep &= found
    return keep


def words_of(keys: str) -> list[str]:
    """The keys in a KEYS property; empty words do not count."""
    return [word for word in keys.split(KEY_SEPARATOR) if word]
