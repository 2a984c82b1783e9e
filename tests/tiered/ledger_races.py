"""Two writers race for a ledger, and what each believes to have committed is compared.

A race is two brokers' tier processes: each opens the ledger, commits a few segments, and after a crash, a lost answer
or being fenced may come back once with a new epoch. `SlowStore` is between them and the store: any call may be put off,
before it is carried out and after, for longer than the other writer's whole life. One seed replays one race.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from tests.clock import Clock
from tests.tiered.ledger_data import IDENTITY, KEYS, make_entry
from thermocline.remoting.errors import FencedError, ObjectStoreUnavailableError
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.ledger.fencing import EntryArbiter
from thermocline.tiered.ledger.ledger_reader import find_entry, open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.objects.object_store import Data, ObjectInfo, ObjectStore
from thermocline.tiered.wrappers import ProcessCrash
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore

COMMITS = 3
LONG_TURNS = 400

NewArbiter = Callable[[ObjectStore, Random], EntryArbiter]


class IgnoringStore(WrappingObjectStore):
    """As rclone's S3 server: it accepts the condition and ignores it."""

    async def create_if_absent(self, key: str, data: Data) -> None:
        """Replace what is there."""
        await self._inner.put(key, data)


class SlowStore(WrappingObjectStore):
    """Every call waits a random number of the loop's turns before and after it is carried out, now and then many."""

    def __init__(self, inner: ObjectStore, random: Random) -> None:
        super().__init__(inner)
        self._random = random

    async def _pause(self) -> None:
        draw = self._random.random()
        turns = self._random.randrange(LONG_TURNS) if draw < 0.02 else self._random.randrange(6)
        for _ in range(turns):
            await asyncio.sleep(0)

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        await self._pause()
        result = await attempt()
        await self._pause()
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore; a page is of one instant, as S3's are."""
        await self._pause()
        page = [info async for info in self._inner.list(prefix, start_after=start_after)]
        await self._pause()
        for info in page:
            yield info


@dataclass(slots=True)
class Believer:
    """The state of one broker: version -> nonce of the entries that it takes for its own, by the answers it got."""

    name: str
    committed: dict[int, str] = field(default_factory=dict)
    segments: list[str] = field(default_factory=list)

    def believes(self, writer: LedgerWriter) -> None:
        """The newest version of `writer` is its own."""
        self.committed[writer.version] = writer.catalog.nonce


async def live(
    believer: Believer, store: ObjectStore, *, new_arbiter: NewArbiter, random: Random, commits: int = COMMITS
) -> None:
    """One broker's life: twice at most it opens the ledger and commits until it is fenced or done."""
    for life in range(2):
        try:
            writer = await LedgerWriter.open(
                store,
                KEYS,
                identity=IDENTITY,
                clock_ms=Clock(),
                random=random,
                arbiter=new_arbiter(store, random),
                checkpoint_interval=4,
            )
            believer.believes(writer)
            for number in range(commits):
                entry = make_entry(
                    writer.next_segment_id(), topic=f"{believer.name}-{life}", start=number * 10, count=10
                )
                with contextlib.suppress(ObjectStoreUnavailableError):
                    await writer.commit(LedgerChanges(segments_in=(entry,)))
                await _settled(writer)
                believer.believes(writer)
                believer.segments.append(entry.segment_id)
        except (FencedError, ObjectStoreUnavailableError, ProcessCrash):
            if random.random() < 0.5:
                return
        else:
            return


async def _settled(writer: LedgerWriter) -> None:
    for _ in range(50):
        try:
            await writer.settle()
        except ObjectStoreUnavailableError:
            continue
        return
    raise ObjectStoreUnavailableError("never settled")


async def judge(believers: list[Believer], store: ObjectStore) -> list[str]:
    """What is wrong: a version that two believe in, or one that the ledger does not have as its believer does."""
    wrong = []
    owners: dict[int, str] = {}
    for believer in believers:
        for version in believer.committed:
            if version in owners:
                wrong.append(f"version {version} was committed by {owners[version]} and by {believer.name}")
            owners[version] = believer.name
            entry = await find_entry(store, KEYS, version)
            if entry is None or entry.nonce != believer.committed[version]:
                wrong.append(f"version {version} is not the entry that {believer.name} committed")
    catalog: Catalog = await open_catalog(store, KEYS)
    found = {segment.segment_id for topic in catalog.topics.values() for segment in topic.segments}
    for believer in believers:
        wrong += [
            f"segment {segment_id} of {believer.name} is lost"
            for segment_id in believer.segments
            if segment_id not in found
        ]
    return wrong
