"""Runs: the scripts. Each goes through some part of a cold tier's life; together they meet all of it.

The same seed is the same run: sizes and places of messages, how long requests take and which overtake which, whether
the log is flushed before it is answered, whether requests are retried below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.crash.points.play import Play
from tests.crash.points.small_broker import GRACE_MS, STATE_INTERVAL_MS
from tests.crash.points.verdict import check_messages

KEEPING, EXPIRING = "Steam", "Brine"
TTL_MS = 3_000
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
    await play.sleep(TTL_MS - STATE_INTERVAL_MS)
    await play.seal()
    await play.restart_tier()
    play.append(KEEPING, 4)
    await play.sleep(GRACE_MS)
    await play.seal()
    await play.sleep(GRACE_MS)
    play.append(EXPIRING, 4)
    await play.seal()
    await play.collect()
    await play.delete_local_files()


async def topic_lives(play: Play) -> None:
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
    await play.sleep(STATES_SAVED_MS)
    play.append(KEEPING, 4)
    await play.lose_disk()
    await play.recover()
    await check_messages(play.broker, play.promises, settles=True)
    play.append(KEEPING, 4)
    play.append(EXPIRING, 4)
    await play.seal()
    await play.delete_local_files()
    play.append(EXPIRING, 2)
    await play.lose_disk()
    await play.recover()
    await check_messages(play.broker, play.promises, settles=True)
    play.append(KEEPING, 3)
    await play.seal()
    await play.sleep(GRACE_MS)
    await play.collect()


RUNS: dict[str, Callable[[Play], Awaitable[None]]] = {
    "tiering": tiering,
    "topic-lives": topic_lives,
    "lost-disk": lost_disk,
}
