"""Carried state: a state snapshot inside a ledger entry that is committed anyway, in place of an object of its own.

    LedgerEntry.state       one zstd frame around the snapshot as an object would hold it
    Catalog.state_version   the entry that carries the newest one; 0: none does

Rules
  - It has the name and the reservation of the snapshot object before it, and is newer. So if a carried state is
    damaged, collected, or not supported by an older reader, only freshness is lost: recovery from that object is safe.
  - Two carried states never follow each other: there is an object between them. And one interval after a carried state
    an object is written, even if nothing has changed: so the entry may be collected, and a reader that only reads
    objects finds one that is at most two intervals old.
  - At most CARRIED_BYTES_MAX, so that entries stay small for those that follow the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import zstandard

from thermocline.remoting.errors import CorruptDataError
from thermocline.tiered.ledger import find_entry
from thermocline.tiered.objects import ObjectStore, StateCorruptError, StateTooNewError, decompress_frame
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state.snapshot import StateName, StateSnapshot, decode_state, encode_state

logger = logging.getLogger(__name__)

CARRIED_BYTES_MAX = 512 * 1024
"""Compressed: 10 000 topics of eight queues and two groups take half of it while their offsets are small."""
STATE_BYTES_MAX = 256 * 1024 * 1024
COMPRESSION_LEVEL = 3


class CarriedState(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot for the next entry. Call `committed` once the entry is committed."""

    data: bytes
    committed: Callable[[], None]


def encode_carried(snapshot: StateSnapshot) -> bytes:
    """The snapshot as an entry carries it."""
    return zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(encode_state(snapshot))


def decode_carried(data: bytes) -> StateSnapshot:
    """The snapshot that an entry carries.

    Raises:
        StateTooNewError: It is of a later format.
        StateCorruptError: It is none, or damaged.
    """
    try:
        size_bytes = zstandard.frame_content_size(data)
        if not 0 < size_bytes <= STATE_BYTES_MAX:
            raise StateCorruptError("a carried state of no size", size_bytes=size_bytes)
        text = decompress_frame(data)
        name = msgspec.json.decode(text, type=_Named)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise StateCorruptError("a carried state cannot be decoded") from error
    return decode_state(text, name=StateName(name.epoch, name.sequence))


async def find_carried(store: ObjectStore, keys: BrokerKeys, *, version: int) -> StateSnapshot | None:
    """The snapshot that the entry of `version` carries; None when there is none, or it cannot be read.

    Raises:
        ObjectStoreUnavailableError: No answer.
        StateTooNewError: A later version has written it.
    """
    if not version:
        return None
    try:
        entry = await find_entry(store, keys, version)
        return decode_carried(entry.state) if entry is not None and entry.state else None
    except StateTooNewError:
        raise
    except CorruptDataError as error:
        logger.warning("carried state damaged, the snapshot before it is taken version=%d: %s", version, error)
        return None


class _Named(msgspec.Struct):
    epoch: int
    sequence: int
