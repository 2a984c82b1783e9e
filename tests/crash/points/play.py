"""Play: the steps that scripts are made of. Each drives the broker and notes what is promised by it.

Before a step the promises say what the step may turn out to have done, so that a run can be cut off anywhere in it.
`noted` is called whenever they change: a process that will be killed writes them down there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random

from tests.crash.bucket import KEYS, listed_keys
from tests.crash.points.promises import ChangingTtl, Deleting, Making, Message, Pinned, Promises, Topic
from tests.crash.points.slumber import Slumber
from tests.crash.points.small_broker import SmallBroker, World
from tests.crash.points.tape import Side, Tape
from tests.tiered.bucket_bytes import found_in, objects_of
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import ObjectStoreUnavailableError, UnavailableError
from thermocline.store.log.message_draft import MessageDraft
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.pins import Pin, create_pin, delete_pin
from thermocline.tiered.objects.object_store import ObjectStore

QUEUES = 2
BODY_SIZES = (20, 150, 400, 700)
TTL_ATTRIBUTE = "thermocline.ttl.ms"
RETRY_DELAY_S = 0.5
PURGES_MAX = 10
IDLE_TURNS = 2_000
STOPPING_SIDES = (Side.BEFORE, Side.AFTER, Side.LOST)


async def again(call: Callable[[], Awaitable[object]]) -> None:
    """Call until the store answers, as callers in a daemon do."""
    while True:
        try:
            await call()
        except ObjectStoreUnavailableError:
            await asyncio.sleep(RETRY_DELAY_S)
        else:
            return


async def check_pinned(bucket: ObjectStore, promises: Promises, now_ms: int) -> None:
    """What a reader has pinned is there, for as long as the pin holds."""
    there = await listed_keys(bucket)
    for pinned in promises.pins:
        missing = pinned.object_keys - there
        assert not missing or pinned.until_ms <= now_ms, f"gone from under {pinned.pin_id}: {sorted(missing)}"


class Play:
    """One broker, what it promised, and the script's own chance."""

    def __init__(
        self,
        world: World,
        tape: Tape,
        *,
        slumber: Slumber | None = None,
        noted: Callable[[Promises], None] = lambda _promises: None,
    ) -> None:
        """`slumber`: see SmallBroker."""
        self.world = world
        self.tape = tape
        self.promises = Promises()
        self.random = Random(f"{world.seed} script")
        self.broker: SmallBroker
        self._ended: dict[str, list[bytes]] = {}
        """Topic -> bodies of messages of its earlier incarnations."""
        self._noted = noted
        self._slumber = slumber

    def _note(self) -> None:
        self.promises.now_ms = self.world.now_ms()
        self._noted(self.promises)

    def at(self, operation: str) -> None:
        """What comes now is called this."""
        self.tape.operation = operation
        self._note()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self, operation: str = "start") -> None:
        """Start a broker on what there is."""
        self.at(operation)
        self.broker = SmallBroker(self.world, self.tape, slumber=self._slumber)
        await self.broker.start()

    async def stop(self) -> None:
        """Stop it cleanly."""
        self.at("stop")
        await self.broker.close()
        self.promises.flushed()

    async def die_and_start(self) -> None:
        """It is killed between two steps, and started: what was written is there, and durable once that is read."""
        self.broker.die()
        await asyncio.sleep(0.1)
        await self.start("recover")
        self.promises.survived()

    async def lose_disk(self) -> None:
        """Lose the machine and its disk. Requests that the process has sent arrive before the recovery starts."""
        self.broker.die()
        await asyncio.sleep(0.1)
        for store in self.world.stores:
            await store.arrive()
        self.promises.disk_lost(await open_catalog(self.world.bucket, KEYS))
        self.world.lose_disk()
        self._note()

    async def recover(self) -> None:
        """Another machine goes on from the bucket."""
        self.at("recover from the bucket")
        self.broker = SmallBroker(self.world, self.tape, slumber=self._slumber)
        await again(self.broker.recover)
        await self.start("start recovered")

    async def take_over(self) -> None:
        """The slave whose disk this is becomes the master."""
        self.at("take over")
        self.broker = SmallBroker(self.world, self.tape, slumber=self._slumber)
        await again(self.broker.take_over)

    async def restart_tier(self) -> None:
        """Another tier process takes over."""
        self.at("restart tier")
        await self.broker.stop_tier()
        await self.broker.start_tier()

    async def sleep(self, duration_ms: int) -> None:
        """Time passes."""
        await asyncio.sleep(duration_ms / 1_000)

    # -- topics --------------------------------------------------------------------------------------------------------

    async def make_topic(self, name: str, *, ttl_ms: int | None = None) -> None:
        """Make a topic."""
        self.promises.pending = Making(name, ttl_ms)
        self.at("make topic")
        await self._update(name, ttl_ms)
        self.promises.pending = None
        self.promises.topics[name] = Topic(ttl_ms)
        self._note()

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.promises.pending = Deleting(name)
        self.at("delete topic")
        await self.broker.parts.tables.topics.delete(name)
        self.promises.pending = None
        ended = self._ended.setdefault(name, [])
        ended += [message.body for queue in self.promises.topics[name].queues.values() for message in queue]
        del self.promises.topics[name]
        self._note()

    async def set_ttl(self, name: str, ttl_ms: int | None) -> None:
        """Give a topic another time to live."""
        began_ms = self.world.now_ms()
        self.promises.pending = ChangingTtl(name, ttl_ms, began_ms)
        self.at("set ttl")
        await self._update(name, ttl_ms)
        self.promises.pending = None
        topic = self.promises.topics[name]
        topic.fixed_cut_ms, topic.ttl_ms = topic.cut_ms(began_ms), ttl_ms
        self._note()

    async def _update(self, name: str, ttl_ms: int | None) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        await self.broker.parts.tables.topics.update(config, {f"+{TTL_ATTRIBUTE}": str(ttl_ms or 0)})

    # -- messages ------------------------------------------------------------------------------------------------------

    def append(self, topic: str, count: int, *, flush: bool = True, size_bytes: int | None = None) -> None:
        """Put messages; with `flush` they are acknowledged when this returns, else when something flushes."""
        self.at("append")
        store = self.broker.store
        for _ in range(count):
            queue_id = self.random.randrange(QUEUES)
            message = Message(self.promises.next_body(size_bytes or self.random.choice(BODY_SIZES)))
            queue = self.promises.queue(topic, queue_id)
            queue.append(message)
            self._note()
            number = self.promises.last_body
            result = store.put(
                MessageDraft(
                    topic=topic,
                    queue_id=queue_id,
                    body=message.body,
                    properties_text=f"KEYS\x01{message.key}\x02TAGS\x01t{number % 2}\x02".encode(),
                    born_timestamp_ms=self.world.now_ms(),
                    born_host=("10.0.0.2", 4000),
                )
            )
            before = [each.queue_offset for each in queue[:-1]]
            assert all(offset is None or offset < result.queue_offset for offset in before), "an offset comes twice"
            assert result.queue_offset >= self.promises.topics[topic].floors.get(queue_id, 0), "an offset comes again"
            message.queue_offset = result.queue_offset
            message.store_ms = result.store_timestamp_ms
            message.record = bytes(store.commit_log.record_view(result.physical_offset, result.size_bytes))
            self._note()
        if flush:
            self.flush()

    def flush(self) -> None:
        """What was put is acknowledged."""
        self.at("flush")
        self.broker.store.flush.flush()
        self.promises.flushed()
        self._note()

    # -- cold tier -----------------------------------------------------------------------------------------------------

    async def seal(self, *, flush: bool = True) -> None:
        """Move to the cold tier what is flushed, each topic into a segment; sweep and collect what is due."""
        self.at("seal" if flush else "seal what is flushed")
        await self._report(flush=flush)
        await self._seal_each()

    async def seal_alone(self, topic: str) -> None:
        """Of one topic only, though others have something older in the log."""
        self.at("seal")
        await self._report()
        await self.broker.seal(topic)

    async def seal_packs(self, *, flush: bool = True) -> None:
        """The same, all topics together into packs."""
        self.at("seal packs" if flush else "seal packs of what is flushed")
        await self._report(flush=flush)
        await self.broker.seal()

    async def seal_by_age(self) -> None:
        """Wait until what was appended is as old as that it goes up in packs by itself."""
        self.at("seal by age")
        await self._report()
        settings = self.world.settings
        await self.sleep(settings.seal_age_ms + 2 * settings.account_interval_ms)

    async def _report(self, *, flush: bool = True) -> None:
        await self.broker.report(flush=flush)
        if flush:
            self.promises.flushed()
            self._note()

    async def _seal_each(self) -> None:
        sealing = [self.broker.seal(topic) for topic in self.promises.topics]
        for outcome in await asyncio.gather(*sealing, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def seal_beside_a_sweep(self) -> None:
        """Orphans are looked for while segments are on their way."""
        self.at("seal beside a sweep")
        await self._report()
        await self._beside_sweeps(self._seal_each())

    async def seal_packs_beside_a_sweep(self) -> None:
        """Orphans are looked for while packs are on their way."""
        self.at("seal packs beside a sweep")
        await self._report()
        await self._beside_sweeps(self.broker.seal())

    async def _beside_sweeps(self, work: Coroutine[object, object, None]) -> None:
        working = asyncio.ensure_future(work)
        try:
            while not working.done():
                await asyncio.sleep(0.001)
                await again(self.broker.service.sweep_orphans)
        finally:
            await working

    async def merge(self, *, beside_a_sweep: bool = False) -> None:
        """Merge packs for as long as there is a merge to be made."""
        self.at("merge beside a sweep" if beside_a_sweep else "merge")
        if beside_a_sweep:
            await self._beside_sweeps(self._merge())
        else:
            await self._merge()

    async def merge_beside_an_expiry(self) -> None:
        """Packs are merged while what has expired of them leaves the ledger."""
        self.at("merge beside an expiry")
        await self._report()
        merging = asyncio.ensure_future(self._merge())
        try:
            await asyncio.sleep(0)  # it has chosen its packs
            await again(self.broker.service.sweep_now)
        finally:
            await merging

    async def _merge(self) -> None:
        merging = self.broker.work._merging
        while (plan := merging._next()) is not None:
            try:
                if await merging.rewrite(plan) is None:
                    return  # overtaken: a daemon tries again after a while
            except ObjectStoreUnavailableError:
                await asyncio.sleep(RETRY_DELAY_S)

    async def index(self) -> None:
        """Make, merge and drop index objects for as long as there is anything due."""
        self.at("index")
        await self._index()

    async def index_beside_a_sweep(self) -> None:
        """Orphans are looked for while index objects are on their way."""
        self.at("index beside a sweep")
        await self._beside_sweeps(self._index())

    async def index_beside_a_merge(self) -> None:
        """Packs are merged while their keys are read."""
        self.at("index beside a merge")
        async with asyncio.TaskGroup() as both:
            both.create_task(self._index())
            both.create_task(self._merge())

    async def _index(self) -> None:
        indexing = self.broker.work.indexing._indexing
        # Nothing may be written by the budget of these settings, so that a round does nothing but sweep.
        for step in (indexing.build_or_merge, indexing.run_once):
            is_due = True
            while is_due:
                try:
                    is_due = await step()
                except ObjectStoreUnavailableError:
                    await asyncio.sleep(RETRY_DELAY_S)

    async def purge(self, topic: str) -> None:
        """Nothing that is hidden of a topic is in the bucket any more, byte for byte."""
        self.at("purge")
        await self._purge(topic)

    async def purge_beside_a_deletion(self, topic: str) -> None:
        """A topic is deleted while one of its segments is rewritten, and the ledger says so first."""
        self.at("purge beside a deletion")
        service, writer = self.broker.service, self.broker.work._writer
        purging = asyncio.ensure_future(self._purge(topic))
        turn = 0
        while not purging.done() and not writer.under_way():
            turn += 1
            await asyncio.sleep(0 if turn % IDLE_TURNS else 0.001)  # it may wait to ask once more
        async with service.alone():
            sweeping = asyncio.ensure_future(again(service.sweep_now))
            await asyncio.sleep(0)  # it waits for its turn, before the purge does
            await self.delete_topic(topic)
            self.at("purge beside a deletion")
            await self._report()
        await sweeping
        await purging

    async def _purge(self, topic: str) -> None:
        hidden = self._hidden_bodies(topic)
        await self._report()
        point = self.tape.point
        for attempts_left in reversed(range(PURGES_MAX)):
            try:
                reply = await self.broker.purge(topic)
            except UnavailableError:
                # Where every request is answered a purge is, too.
                if self.broker.fenced is not None or point is None or not attempts_left:
                    raise
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            assert not reply.left_objects, f"a purge of {topic} has left {reply.left_objects}"
            assert not reply.own_segments
            assert not reply.held_by_pin
            break
        if point is None or point.side in STOPPING_SIDES:  # else a request may be carried out behind it
            found = found_in(await objects_of(self.world.bucket), hidden)
            assert not found, f"a purge of {topic} has left {sorted(found)}"

    def _hidden_bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of written messages that no read may return, with the length in front that a record
        holds; the length makes them unique."""
        topic_promises = self.promises.topics.get(topic)
        now_ms = self.world.now_ms()
        messages = (
            [each for queue in topic_promises.queues.values() for each in queue] if topic_promises is not None else []
        )
        cut_ms = topic_promises.cut_ms(now_ms) if topic_promises is not None else 0
        expired = [each.body for each in messages if each.store_ms is not None and each.store_ms < cut_ms]
        return [len(body).to_bytes(4, "big") + body for body in expired + self._ended.get(topic, [])]

    async def pin(self, hold_ms: int) -> None:
        """A reader beside the broker pins the newest version."""
        self.at("pin")
        store = self.world.reader_store()
        catalog = await open_catalog(store, KEYS)
        pin = Pin(
            pin_id=f"reader-{self.promises.last_body}",
            version=catalog.version,
            until_ms=self.world.now_ms() + hold_ms,
            owner="a reader",
        )
        await create_pin(store, KEYS, pin)
        self.promises.pins.append(Pinned(pin.pin_id, pin.until_ms, frozenset(catalog.live_keys())))
        self._note()

    async def unpin(self) -> None:
        """Everything that a reader has pinned is there; it lets go of it."""
        self.at("unpin")
        await check_pinned(self.world.bucket, self.promises, self.world.now_ms())
        for pinned in self.promises.pins[:]:
            self.promises.pins.remove(pinned)
            self._note()
            await delete_pin(self.world.reader_store(), KEYS, pinned.pin_id)

    async def collect(self) -> None:
        """One garbage collection, with a look for orphans."""
        self.at("collect")
        await again(self.broker.service.sweep_orphans)

    async def delete_local_files(self) -> None:
        """Let go of local files."""
        self.at("delete local files")
        await self.broker.delete_local_files()
        self.promises.flushed()
        self._note()
