"""Would two writers commit? Tested by racing many of them, because some stores pass every one-at-a-time check.

    conditional   16 writers create one key at once, each with bytes of its own: one succeeds, and its bytes are stored.
                  Then one more, alone. Rounds with larger bodies too: they expose stores that check first and write
                  afterwards.
    ballots       16 writers at once put a key each and list the folder as soon as the put has returned: of any two, one
                  sees the other. That is all that ballots need (see fencing.py).

A test can show that a store is unfit, never that it is fit: findings report observations, with their counts.
Answers that never came count for nothing: the object may or may not be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.finding import ALL_MODES, Finding, failed, passed
from thermocline.tiered.ledger import FencingMode
from thermocline.tiered.objects import AlreadyExistsError, ObjectStoreRefusedError

CONDITIONAL, LISTING = "conditional-create", "racing-listings"
WRITERS = 16
SMALL_BYTES = 1_000
DENIED_STATUSES = (401, 403)
_BY_CONDITION = frozenset({FencingMode.CONDITIONAL})
_BY_BALLOTS = frozenset({FencingMode.BALLOTS})


class RaceRound(msgspec.Struct, frozen=True, kw_only=True):
    """One key that `writers` raced for. `kept`: the stored bytes are of a writer that may have won."""

    winners: int
    unanswered: int
    kept: bool


class Races(msgspec.Struct, frozen=True, kw_only=True):
    """How often what is raced."""

    writers: int = WRITERS
    small_rounds: int = 10
    large_rounds: int = 3
    large_bytes: int = 1024 * 1024
    listing_rounds: int = 5


async def probe_conditional(bench: Bench, races: Races) -> Finding:
    """Whether `create_if_absent` keeps its promise. ObjectStoreUnavailableError when there is no result now."""
    try:
        is_refused, stored = await _create_twice(bench, bench.key("one-at-a-time"))
        rounds = [
            await _race(bench, bench.key(f"race-{number:03}"), races.writers, size_bytes)
            for number, size_bytes in enumerate(
                [SMALL_BYTES] * races.small_rounds + [races.large_bytes] * races.large_rounds
            )
        ]
    except ObjectStoreRefusedError as error:
        if error.context.get("status") in DENIED_STATUSES:
            raise
        return failed(CONDITIONAL, f"refuses conditional creates ({error})", rules_out=_BY_CONDITION)
    most = max(round_.winners for round_ in rounds)
    bad = sum(round_.winners > 1 or not round_.kept for round_ in rounds)
    figures = {
        "writers": races.writers,
        "rounds": len(rounds),
        "bad_rounds": bad,
        "winners_max": most,
        "unanswered": sum(round_.unanswered for round_ in rounds),
    }
    wins = f"{most} of {races.writers} racing writers won"
    if not is_refused:
        text = f"accepts If-None-Match and ignores it: a second create overwrote the first, and {wins}"
        return failed(CONDITIONAL, text, rules_out=_BY_CONDITION, **figures)
    if most > 1:
        text = f"honours If-None-Match one at a time, but {wins}, in {bad} of {len(rounds)} rounds"
        return failed(CONDITIONAL, text, rules_out=_BY_CONDITION, **figures)
    if not stored:
        text = "refuses a second create, and keeps other bytes than the first one's"
        return failed(CONDITIONAL, text, rules_out=_BY_CONDITION, **figures)
    if bad:
        text = f"keeps other bytes than those of the writer that won, in {bad} of {len(rounds)} rounds"
        return failed(CONDITIONAL, text, rules_out=_BY_CONDITION, **figures)
    text = f"exactly one of {races.writers} racing writers won, in each of {len(rounds)} rounds"
    return passed(CONDITIONAL, text, **figures)


async def probe_listings(bench: Bench, races: Races) -> Finding:
    """Whether a listing shows every put that had returned. ObjectStoreUnavailableError when there is no result."""
    missed = pairs = 0
    for number in range(races.listing_rounds):
        folder = bench.key(f"listing-{number:03}/")

        async def write_and_look(writer: int, folder: str = folder) -> tuple[str, frozenset[str]]:
            key = f"{folder}{writer:03}"
            await bench.put(key, b"%d" % writer)
            return key, frozenset([info.key async for info in bench.list(folder)])

        seen = await asyncio.gather(*(write_and_look(writer) for writer in range(races.writers)))
        missed += sum(key not in keys for key, keys in seen)
        for (one, seen_by_one), (other, seen_by_other) in itertools.combinations(seen, 2):
            pairs += 1
            missed += other not in seen_by_one and one not in seen_by_other
    figures = {"writers": races.writers, "rounds": races.listing_rounds, "pairs": pairs, "missed": missed}
    if missed:
        text = f"listings lag: {missed} times of {pairs} two writers listed after their puts and neither saw the other"
        return failed(LISTING, text, rules_out=_BY_BALLOTS, **figures)
    return passed(LISTING, f"of two racing writers one always saw the other, {pairs} times", **figures)


async def probe_read_back(bench: Bench, *, count: int) -> Finding:
    """Whether a get that follows a put returns what was put; nothing here works without."""
    name, wrong = "read-after-write", 0
    for number in range(count):
        key, first, second = bench.key(f"read-{number:03}"), b"first %d" % number, b"second %d, longer" % number
        try:
            wrong += await _is_there(bench, key)  # an answer "not there" must not be remembered
            for data in (first, second):
                await bench.put(key, data)
                info = await bench.head(key)
                wrong += await bench.get(key) != data or info.size_bytes != len(data)
            await bench.delete(key)
            wrong += await _is_there(bench, key)
        except ObjectNotFoundError:
            wrong += 1
    if wrong:
        text = f"reads lag behind writes: {wrong} wrong answers in {count} series of put, get and delete"
        return failed(name, text, rules_out=ALL_MODES, series=count, wrong=wrong)
    return passed(name, "what was put, replaced and deleted was read so at once", series=count)


async def _create_twice(bench: Bench, key: str) -> tuple[bool, bool]:
    """Whether the second of two creates was refused, and whether the first one's bytes are still there."""
    with contextlib.suppress(AlreadyExistsError):  # by a repeated attempt, whose first had got no answer
        await bench.create_if_absent(key, b"first")
    try:
        await bench.create_if_absent(key, b"second")
    except AlreadyExistsError:
        return True, await bench.get(key) == b"first"
    return False, await bench.get(key) == b"first"


async def _race(bench: Bench, key: str, writers: int, size_bytes: int) -> RaceRound:
    padding = bench.random.randbytes(max(0, size_bytes - 4))
    bodies = [b"%03d\n" % writer + padding for writer in range(writers)]

    async def create(body: bytes) -> bool | None:
        try:
            await bench.create_if_absent(key, body)
        except AlreadyExistsError:
            return False
        except ObjectStoreRefusedError:
            raise
        except ObjectStoreUnavailableError:
            return None
        return True

    answers = await asyncio.gather(*map(create, bodies))
    winners = [number for number, answer in enumerate(answers) if answer]
    unanswered = answers.count(None)
    # A winner whose answer was lost finds its own object in the second attempt: then no writer seems to win.
    candidates = winners or range(writers)
    try:
        stored = await bench.get(key)
    except ObjectNotFoundError:
        return RaceRound(winners=len(winners), unanswered=unanswered, kept=not winners and unanswered > 0)
    kept = any(stored == bodies[number] for number in candidates)
    return RaceRound(winners=len(winners), unanswered=unanswered, kept=kept or (unanswered > 0 and not winners))


async def _is_there(bench: Bench, key: str) -> bool:
    try:
        await bench.get(key)
    except ObjectNotFoundError:
        return False
    return True
