"""Pins: `pins/{id}.json` marks a version as being read until a time; objects that it names are not deleted before.

Handshake with the collector, which reads only its own clock
    reader:     write the pin; read the ledger; the pin holds if its version is still readable
    collector:  list pins; commit `readable_from` below them; list pins again; delete only if none is below it
Whichever comes first, either the reader sees the new `readable_from`, or the collector sees the pin.

Listings may lag. Readers nearly always pin the newest version, or one superseded recently, and the collector passes a
version only a grace period after it was superseded: by then every listing must show the pin. So pins hold where
listings lag by less than the grace period (a day by default). A version that is pinned shortly before its grace period
ends, or during a collection without grace period, needs listings that do not lag.

A pin created between the collector's two listings holds although `readable_from` has passed it: the collector sees it,
and deletes nothing while it exists. So the ledger does not tell whether a pin still holds; `renew_pin` decides by
whether it had run out when it was replaced. The collector deletes an expired pin only when `readable_from` has passed
its version: a reader that renews it later finds that in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects import (
    LedgerCorruptError,
    ObjectStore,
    VersionExpiredError,
    check_json,
    run_all,
    seal_json,
)
from thermocline.tiered.segments import BrokerKeys

CLOCK_SKEW_MS_MAX = 60_000
"""How far the clocks of reader and collector may be apart: a pin that runs out sooner is renewed as a new one."""


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` is for people; `until_ms` is wall-clock time."""

    pin_id: str
    version: int
    until_ms: int
    owner: str


async def create_pin(store: ObjectStore, keys: BrokerKeys, pin: Pin) -> None:
    """Keep a version readable; the id is new and unique.

    Raises:
        VersionExpiredError: The version is not readable any more; no pin is left.
        ObjectStoreUnavailableError: No answer; the pin may be there, and then runs out by itself.
    """
    await store.put(keys.pin(pin.pin_id), encode_pin(pin))
    await _check_readable(store, keys, pin)


async def renew_pin(store: ObjectStore, keys: BrokerKeys, pin: Pin, *, clock: Callable[[], int]) -> None:
    """Keep the version of a pin readable until `pin.until_ms`. Safe beside a collector, and to repeat.

    A pin that had run out, or will within CLOCK_SKEW_MS_MAX, is made anew: then the version may be gone.

    Raises:
        VersionExpiredError: The pin had run out, and its version is not readable any more; no pin is left.
        ObjectStoreUnavailableError: No answer; the pin holds as long as it did before.
    """
    key = keys.pin(pin.pin_id)
    found = await find_pin(store, keys, pin.pin_id)
    await store.put(key, encode_pin(pin))
    if found is not None and found.version == pin.version and clock() + CLOCK_SKEW_MS_MAX < found.until_ms:
        return  # at every moment until this one there was a pin that had not run out
    await _check_readable(store, keys, pin)


async def find_pin(store: ObjectStore, keys: BrokerKeys, pin_id: str) -> Pin | None:
    """The pin of that id, run out or not."""
    key = keys.pin(pin_id)
    try:
        return decode_pin(await store.get(key), key=key)
    except ObjectNotFoundError:
        return None


async def _check_readable(store: ObjectStore, keys: BrokerKeys, pin: Pin) -> None:
    """Check that a pin that was just written holds; otherwise delete it and raise VersionExpiredError."""
    catalog = await open_catalog(store, keys, only_topics=frozenset())
    if not catalog.readable_from <= pin.version <= catalog.version:
        await store.delete(keys.pin(pin.pin_id))
        raise VersionExpiredError("the version cannot be pinned", version=pin.version, readable=catalog.readable_from)


async def delete_pin(store: ObjectStore, keys: BrokerKeys, pin_id: str) -> None:
    """Delete a pin, so that its version may be collected."""
    await store.delete(keys.pin(pin_id))


async def list_pins(store: ObjectStore, keys: BrokerKeys) -> list[Pin]:
    """Every pin, run out or not. LedgerCorruptError when one cannot be read: then nothing may be deleted.

    Objects without a pin's name are ignored.
    """

    async def read(key: str) -> Pin | None:
        try:
            return decode_pin(await store.get(key), key=key)
        except ObjectNotFoundError:
            return None

    # List to the end first: otherwise a failing listing leaves reads running that no call awaits.
    listed = [info.key async for info in store.list(keys.pins_prefix) if info.key.endswith(".json")]
    found = await run_all([read(key) for key in listed])
    return [pin for pin in found if pin is not None]


def encode_pin(pin: Pin) -> bytes:
    """The pin as it is stored."""
    return seal_json(msgspec.json.encode(pin))


def decode_pin(data: bytes, *, key: str) -> Pin:
    """The pin that was stored as `key`. LedgerCorruptError when it is not a pin, or damaged."""
    check_json(data, key=key)
    try:
        return msgspec.json.decode(data, type=Pin)
    except msgspec.DecodeError as error:
        raise LedgerCorruptError("a pin cannot be decoded", key=key) from error
