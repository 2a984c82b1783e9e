"""Runs: the scripts. Each goes through some part of a cold tier's life; together they meet all of it.

The same seed is the same run: sizes and places of messages, how long requests take and which overtake which, whether
the log is flushed before it is answered, whether requests are retried below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.crash.points.play import Play
from tests.crash.points.small_broker import GRACE_MS, STATE_INTERVAL_MS, Settings
from tests.crash.points.verdict import check_messages

KEEPING, EXPIRING, LASTING = "Steam", "Brine", "Dew"
TTL_MS = 3_000
LASTING_MS = 18 * TTL_MS
"""Of the same TTL class as the other one, so that they share packs."""
PURGED_TTL_MS = 300
OWN_TTL_MS = 2_000
LARGE_BYTES = 3_400
INDEXED_ITEMS = 4
"""So many packs of a class, or segments of a topic, are indexed at a time."""
COLLECTED_MS = 200
"""By then the round that has sealed has collected garbage, too."""
STATES_SAVED_MS = 4 * STATE_INTERVAL_MS
"""By then a state is in the bucket, also when its first try got no answer."""


async def _topics(play: Play) -> None:
    await play.make_topic(KEEPING)
    await play.make_topic(EXPIRING, ttl_ms=TTL_MS)


async def tiering(play: Play) -> None:
    """Append, seal, commit, checkpoint, expire, sweep, collect, delete locally: over two tier processes."""
    await play.start()
    await _topics(play)
    play.append(KEEPING, 6)
    play.append(EXPIRING, 5)
    await play.seal()
    play.append(KEEPING, 6, flush=False)
    play.append(EXPIRING, 3, flush=False)
    await play.seal(flush=False)
    await play.delete_local_files()
    play.append(KEEPING, 5)
    await play.seal_beside_a_sweep()
    await play.sleep(STATE_INTERVAL_MS)
    play.append(EXPIRING, 5)
    await play.seal()
    await play.delete_local_files()
    await play.pin(TTL_MS + 3 * GRACE_MS)
    await play.sleep(TTL_MS - STATE_INTERVAL_MS)
    await play.seal()
    await play.restart_tier()
    play.append(KEEPING, 4)
    await play.sleep(GRACE_MS)
    await play.seal()
    await play.sleep(COLLECTED_MS)
    await play.unpin()
    await play.sleep(GRACE_MS)
    play.append(EXPIRING, 4)
    await play.seal()
    await play.collect()
    await play.delete_local_files()


async def topic_incarnations(play: Play) -> None:
    """Times to live that shrink and grow, a topic that is deleted and made again, stops and deaths of the broker."""
    await play.start()
    await _topics(play)
    play.append(KEEPING, 5)
    play.append(EXPIRING, 5)
    await play.seal()
    await play.sleep(500)
    play.append(EXPIRING, 3)
    await play.set_ttl(EXPIRING, 400)
    await play.seal()
    await play.set_ttl(EXPIRING, 20 * TTL_MS)
    play.append(EXPIRING, 3)
    await play.seal()
    await play.delete_local_files()
    await play.delete_topic(KEEPING)
    await play.make_topic(KEEPING)
    play.append(KEEPING, 5)
    await play.stop()
    await play.start("start again")
    await play.seal()
    await play.sleep(GRACE_MS)
    play.append(KEEPING, 5)
    await play.delete_topic(EXPIRING)
    await play.seal()
    await play.die_and_start()
    await play.sleep(GRACE_MS)
    play.append(KEEPING, 5)
    await play.seal()
    await play.delete_local_files()
    await play.sleep(STATE_INTERVAL_MS)
    await play.collect()


async def lost_disk(play: Play) -> None:
    """A broker whose disk is lost goes on from its bucket, twice."""
    await play.start()
    await play.make_topic(KEEPING)
    await play.make_topic(EXPIRING, ttl_ms=60 * TTL_MS)
    play.append(KEEPING, 6)
    play.append(EXPIRING, 4)
    await play.seal()
    play.append(KEEPING, 2)
    play.append(EXPIRING, 2)
    await play.seal_packs()
    await play.sleep(STATES_SAVED_MS)
    # Only the newest state holds it.
    await play.make_topic(LASTING)
    await play.sleep(STATES_SAVED_MS)
    play.append(KEEPING, 4)
    await play.sleep(STATE_INTERVAL_MS * 3 // 4)
    await play.seal_packs()  # its entry carries the state
    play.append(KEEPING, 2)
    await play.lose_disk()
    await play.recover()
    await check_messages(play.broker, play.promises, settles=True)
    play.append(KEEPING, 4)
    play.append(EXPIRING, 4)
    await play.seal_packs()
    await play.delete_local_files()
    play.append(EXPIRING, 2)
    await play.lose_disk()
    await play.recover()
    await check_messages(play.broker, play.promises, settles=True)
    play.append(KEEPING, 3)
    await play.seal()
    await play.sleep(GRACE_MS)
    await play.collect()


async def packs(play: Play) -> None:
    """Small topics that go up in packs by their age; packs that are merged, die by time to live, and are purged."""
    await play.start()
    await _topics(play)
    await play.make_topic(LASTING, ttl_ms=LASTING_MS)
    play.append(KEEPING, 4)
    play.append(EXPIRING, 3)
    await play.seal_by_age()
    play.append(KEEPING, 3)
    play.append(EXPIRING, 2)
    play.append(LASTING, 3)
    await play.seal_packs_beside_a_sweep()
    play.append(KEEPING, 3, flush=False)
    play.append(LASTING, 2, flush=False)
    await play.seal_packs(flush=False)
    await play.delete_local_files()
    await play.merge()
    play.append(KEEPING, 3)
    await play.seal_by_age()
    # A pack of a single topic expires as a whole, a shared one does not.
    play.append(EXPIRING, 4)
    await play.seal_packs()
    await play.sleep(TTL_MS)
    play.append(LASTING, 2)
    await play.seal_packs()
    await play.restart_tier()
    play.append(KEEPING, 3)
    await play.seal_packs()
    await play.merge(beside_a_sweep=True)
    await play.sleep(GRACE_MS)
    await play.collect()
    await play.delete_local_files()


async def purging(play: Play) -> None:
    """Hidden bytes of topics that were shortened or deleted leave the bucket, beside those that stay."""
    await play.start()
    await _topics(play)
    await play.make_topic(LASTING, ttl_ms=LASTING_MS)
    for count in (4, 2):
        play.append(LASTING, count)
        play.append(EXPIRING, count)
        await play.seal_packs()
        await play.sleep(200)
    play.append(KEEPING, 3)
    await play.seal_packs()
    await play.delete_local_files()
    await play.set_ttl(EXPIRING, PURGED_TTL_MS)
    await play.sleep(200)
    play.append(EXPIRING, 3)
    await play.seal_packs()
    await play.purge(EXPIRING)
    await play.delete_topic(LASTING)
    await play.make_topic(LASTING, ttl_ms=LASTING_MS)
    play.append(LASTING, 3)
    await play.seal_packs()
    await play.purge(LASTING)
    for _ in range(2):
        play.append(EXPIRING, 2)
        await play.seal_packs()
    await play.sleep(2 * PURGED_TTL_MS)
    await play.merge_beside_an_expiry()
    # Segments of a topic's own, each with messages of several ages: rewritten, and then what was rewritten.
    await play.set_ttl(EXPIRING, OWN_TTL_MS)
    for _ in range(3):
        play.append(EXPIRING, 2)
        await play.sleep(OWN_TTL_MS // 4)
    await play.seal_alone(EXPIRING)
    play.append(LASTING, 2)
    await play.sleep(OWN_TTL_MS // 2)
    await play.seal_alone(LASTING)
    play.append(KEEPING, 2, size_bytes=LARGE_BYTES)  # so that no local file holds them any more
    await play.seal_packs()
    await play.delete_local_files()
    await play.purge(EXPIRING)
    await check_messages(play.broker, play.promises, settles=False)
    await play.sleep(OWN_TTL_MS // 4)
    await play.purge(EXPIRING)
    for _ in range(2):
        play.append(LASTING, 2)
        await play.sleep(PURGED_TTL_MS)
    await play.seal_alone(LASTING)
    await play.set_ttl(LASTING, 2 * PURGED_TTL_MS - 1)
    await play.purge_beside_a_deletion(LASTING)
    await play.sleep(GRACE_MS)
    await play.collect()


async def merging(play: Play) -> None:
    """Merges that go on by themselves while everything else does: up to segments of a topic's own."""
    await play.start()
    await play.make_topic(KEEPING)
    await play.make_topic(LASTING, ttl_ms=LASTING_MS)
    for _ in range(3):
        play.append(KEEPING, 5, size_bytes=LARGE_BYTES)
        play.append(LASTING, 2)
        await play.seal_by_age()
    await play.delete_local_files()
    await play.delete_topic(LASTING)
    await play.make_topic(LASTING, ttl_ms=LASTING_MS)
    play.append(LASTING, 3)
    await play.seal_packs_beside_a_sweep()
    play.append(LASTING, 3)
    await play.seal_packs()
    await play.set_ttl(LASTING, 100)
    await play.seal_packs()
    await play.die_and_start()
    play.append(KEEPING, 5, size_bytes=LARGE_BYTES)
    await play.seal_packs()
    await play.sleep(GRACE_MS)
    play.append(KEEPING, 10, size_bytes=LARGE_BYTES)  # half a segment: one object
    await play.seal_by_age()
    await play.sleep(STATE_INTERVAL_MS)
    await play.collect()
    await play.delete_local_files()


async def indexing(play: Play) -> None:
    """Index objects that are made of packs and segments, merged as those are, and die with what they name."""
    await play.start()
    await _topics(play)
    for _ in range(INDEXED_ITEMS):
        play.append(KEEPING, 2)
        play.append(EXPIRING, 1)
        await play.seal_packs()
    await play.index()
    await play.delete_local_files()
    for _ in range(INDEXED_ITEMS):
        play.append(KEEPING, 2)
        await play.seal()
    await play.index_beside_a_sweep()
    await play.restart_tier()
    for _ in range(INDEXED_ITEMS):
        play.append(KEEPING, 1)
        play.append(EXPIRING, 1)
        await play.seal_packs()
    play.append(KEEPING, 1)
    play.append(EXPIRING, 1)
    await play.seal_alone(EXPIRING)
    await play.index_beside_a_merge()
    await play.sleep(TTL_MS)
    for _ in range(INDEXED_ITEMS - 1):
        play.append(KEEPING, 2)
        await play.seal()
    play.append(KEEPING, 2, flush=False)
    await play.seal(flush=False)
    await play.delete_topic(EXPIRING)
    await play.die_and_start()
    play.append(KEEPING, 1)
    await play.seal()
    # With the fourth object of a class and a level the four become one.
    await play.index()
    await play.sleep(GRACE_MS)
    await play.collect()
    await play.delete_local_files()


RUNS: dict[str, Callable[[Play], Awaitable[None]]] = {
    "tiering": tiering,
    "topic-incarnations": topic_incarnations,
    "lost-disk": lost_disk,
    "packs": packs,
    "purging": purging,
    "merging": merging,
    "indexing": indexing,
}
SETTINGS = {
    "takeover": Settings(account_interval_ms=30_000),  # a request may be what finds out, and rounds tell
    "packs": Settings(seal_age_ms=300, account_interval_ms=100),
    "merging": Settings(
        log_file_bytes=16_384, seal_age_ms=300, account_interval_ms=100, merge_bytes_per_second=1 << 20
    ),
}
