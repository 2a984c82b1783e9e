"""PinKeeper: pins the versions that a job reads, in their buckets, and keeps the pins from running out.

    create -> renewed every RENEWAL_S by a thread of the driver, for PIN_MS each -> close deletes them

A driver that is killed leaves pins that run out by themselves within PIN_MS. A renewal that gets no answer is tried
again sooner; one that finds the version gone is remembered, and `check` says so from then on: what was read until then
was whole, what is read afterwards may not be.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.reading.read_plan import ColdSource
from thermocline.tiered.ledger import Pin, create_pin, delete_pin, renew_pin
from thermocline.tiered.objects import VersionExpiredError
from thermocline.tiered.segments import BrokerKeys

logger = logging.getLogger(__name__)

PIN_MS = 600_000
RENEWAL_S = 120.0
RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class _Kept:
    store: BlockingStore
    keys: BrokerKeys
    root: str
    version: int


class PinKeeper:
    """Holds one pin a broker. Any thread may use it."""

    def __init__(
        self,
        sources: Sequence[tuple[BlockingStore, ColdSource]],
        *,
        owner: str,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Pin every source at its version.

        Raises:
            VersionExpiredError: One is not readable any more; none is pinned.
            UnavailableError: A store gave no answer, or refuses to write.
        """
        self.pin_id = f"spark-{uuid4().hex}"
        """The pins' name, in every broker's part of a bucket."""
        self._owner = owner
        self._clock = clock
        self._kept = [_Kept(store, BrokerKeys(source.root), source.root, source.version) for store, source in sources]
        self._lost: VersionExpiredError | None = None
        self._held_until_ms = clock() + PIN_MS
        self._closed = threading.Event()
        made: list[_Kept] = []
        try:
            for kept in self._kept:
                made.append(kept)
                kept.store.run(create_pin(kept.store.store, kept.keys, self._pin(kept)))
        except BaseException:
            self._delete(made)
            raise
        self._thread = threading.Thread(target=self._run, name="thermocline-pins", daemon=True)
        self._thread.start()

    @property
    def versions(self) -> dict[str, int]:
        """The pinned version of every root."""
        return {kept.root: kept.version for kept in self._kept}

    def check(self) -> None:
        """Pass while everything has been held from the start.

        Raises:
            VersionExpiredError: A pin was lost: a renewal came too late.
            InvalidRequestError: The pins were released.
        """
        if self._lost is not None:
            raise self._lost
        if self._closed.is_set():
            raise InvalidRequestError("the snapshot is closed, and its version no longer held")
        if self._clock() >= self._held_until_ms:
            raise self._lose(self._kept[0])

    def renew(self) -> None:
        """Keep every version for PIN_MS from now.

        Raises:
            VersionExpiredError: See `check`.
            UnavailableError: No answer.
        """
        until_ms = self._clock() + PIN_MS
        for kept in self._kept:
            try:
                kept.store.run(renew_pin(kept.store.store, kept.keys, self._pin(kept), clock=self._clock))
            except VersionExpiredError as error:
                raise self._lose(kept) from error
            if self._clock() >= self._held_until_ms:
                raise self._lose(kept)  # it is held again; but plans made in between judged by today's time to live
        self._held_until_ms = until_ms

    def close(self) -> None:
        """Let the versions go. Idempotent; a pin that cannot be deleted runs out by itself."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        self._delete(self._kept)

    def _lose(self, kept: _Kept) -> VersionExpiredError:
        self._lost = VersionExpiredError(
            "the version was not held all the time, load it anew", broker=kept.root, version=kept.version
        )
        return self._lost

    def _pin(self, kept: _Kept) -> Pin:
        return Pin(pin_id=self.pin_id, version=kept.version, until_ms=self._clock() + PIN_MS, owner=self._owner)

    def _run(self) -> None:
        wait_s = RENEWAL_S
        while not self._closed.wait(wait_s):
            try:
                self.renew()
            except VersionExpiredError as error:
                logger.error("a pin was lost: %s", error)
                return
            except MQError as error:
                logger.warning("a pin was not renewed, will try again: %s", error)
                wait_s = RETRY_S
            else:
                wait_s = RENEWAL_S

    def _delete(self, pins: Sequence[_Kept]) -> None:
        for kept in pins:
            try:
                kept.store.run(delete_pin(kept.store.store, kept.keys, self.pin_id))
            except MQError as error:
                logger.warning("a pin was not released and runs out by itself: %s", error)
