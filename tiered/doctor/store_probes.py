"""Probes by the verbs of ObjectStore, so that they try every provider as the broker uses it."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

from thermocline.remoting.errors import MQError, ObjectNotFoundError, ObjectStoreUnavailableError, SegmentSizeError
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.finding import Finding, failed, noted, passed, warned
from thermocline.tiered.objects import ObjectStoreRefusedError, SegmentOffset, UntrustedStoreError

MIB = 1024 * 1024
RANGES = "ranges"
LISTED_COUNT = 40
FIRST_BYTE_COUNT = 16
FIRST_BYTE_RANGE = 4096


async def probe_permissions(bench: Bench) -> list[Finding]:
    """Try each verb once. What is denied is a defect: a broker needs all of them.

    Raises:
        UntrustedStoreError: No request reached the store, so nothing was denied.
    """
    key = bench.key("permissions")

    async def listed() -> None:
        async for _ in bench.list(bench.prefix):
            return

    tries: dict[str, Callable[[], Awaitable[object]]] = {
        "list": listed,
        "put": lambda: bench.put(key, b"0123456789"),
        "get": lambda: bench.get(key),
        "head": lambda: bench.head(key),
        "delete": lambda: bench.delete(key),
    }
    findings = []
    is_put = False
    for verb, attempt in tries.items():
        name = f"may-{verb}"
        try:
            await attempt()
            is_put = is_put or verb == "put"
        except UntrustedStoreError:
            raise
        except ObjectStoreRefusedError as error:
            findings.append(failed(name, f"{verb} is refused ({error})"))
        except ObjectStoreUnavailableError as error:
            findings.append(failed(name, f"{verb} got no answer ({error})"))
        except ObjectNotFoundError:
            if is_put:
                findings.append(failed(name, f"{verb} does not find what was put"))
        except (KeyError, TypeError, ValueError) as error:  # the server at a URL may answer anything
            findings.append(failed(name, f"{verb} gave an answer that cannot be understood ({error!r})"))
        else:
            findings.append(passed(name, f"{verb} is allowed"))
    return findings


async def probe_missing(bench: Bench) -> Finding:
    """Whether the store answers "no such object" for a missing one: without list permission, S3 answers 403 instead."""
    name, key = "missing-object", bench.key("nothing/here")
    for ask in (bench.get, bench.head):
        try:
            await ask(key)
        except ObjectNotFoundError:
            continue
        except ObjectStoreRefusedError as error:
            return failed(name, f"an object that does not exist is not called missing ({error})")
        return failed(name, "an object that does not exist was found")
    return passed(name, "what does not exist is called missing")


async def probe_listing(bench: Bench) -> Finding:
    """Whether listings are complete, in order, and follow writes and deletes at once."""
    name, folder = "listing", bench.key("list/")
    keys = [f"{folder}{number:03}" for number in range(LISTED_COUNT)]
    for count, key in enumerate(keys, start=1):
        await bench.put(key, b"x")
        if count % 8 == 0 and [info.key async for info in bench.list(folder)] != keys[:count]:
            return failed(name, f"a listing after {count} puts is not those {count} keys in order")
    middle = keys[LISTED_COUNT // 2]
    if [info.key async for info in bench.list(folder, start_after=middle)] != keys[LISTED_COUNT // 2 + 1 :]:
        return failed(name, "a listing that starts after a key does not go on behind it")
    await bench.delete_many(keys[::2])
    if [info.key async for info in bench.list(folder)] != keys[1::2]:
        return failed(name, "a listing after deletes still shows deleted keys, or misses others")
    return passed(name, "complete, in order, and following writes and deletes at once", keys=LISTED_COUNT)


async def probe_ranges(bench: Bench) -> Finding:
    """Ranges and suffix ranges, of an object and past its end."""
    name, key, data = RANGES, bench.key(RANGES), bench.random.randbytes(70_000)
    await bench.put(key, data)
    wrong = []
    for start, end in ((0, 1), (0, len(data)), (4_096, 65_536), (len(data) - 1, len(data))):
        try:
            if await bench.get_range(key, start=SegmentOffset(start), end=SegmentOffset(end)) != data[start:end]:
                wrong.append(f"[{start}, {end})")
        except SegmentSizeError:
            wrong.append(f"[{start}, {end})")
    for size_bytes in (1, 40, len(data), len(data) + 1_000):
        suffix = await bench.get_suffix(key, size_bytes=size_bytes)
        if suffix.data != data[-size_bytes:] or suffix.size_bytes != len(data):
            wrong.append(f"the last {size_bytes} bytes")
    for start, end in ((len(data) - 5, len(data) + 5), (len(data), len(data) + 5)):
        try:
            await bench.get_range(key, start=SegmentOffset(start), end=SegmentOffset(end))
        except SegmentSizeError:
            continue
        wrong.append(f"[{start}, {end}), past the end")
    if wrong:
        return failed(name, f"wrong answers for {', '.join(wrong)}")
    return passed(name, "ranges and suffix ranges are exact, past the end too")


async def probe_throughput(bench: Bench, *, size_bytes: int, monotonic: Callable[[], float]) -> Finding:
    """How fast one large object goes in and out, and how long the first bytes of a small range take."""
    name, key, data = "throughput", bench.key("throughput"), bench.random.randbytes(size_bytes)
    started = monotonic()
    await bench.put(key, data)
    put_s = monotonic() - started
    started = monotonic()
    is_same = await bench.get(key) == data
    get_s = monotonic() - started
    if not is_same:
        return failed(name, f"an object of {size_bytes} bytes does not come back as it was")
    waits_ms = []
    for number in range(FIRST_BYTE_COUNT):
        start = SegmentOffset(number * (size_bytes - FIRST_BYTE_RANGE) // FIRST_BYTE_COUNT)
        started = monotonic()
        await bench.get_range(key, start=start, end=start + FIRST_BYTE_RANGE)
        waits_ms.append((monotonic() - started) * 1_000)
    put_mib_s, get_mib_s = size_bytes / MIB / max(put_s, 1e-9), size_bytes / MIB / max(get_s, 1e-9)
    median_ms, worst_ms = statistics.median(waits_ms), max(waits_ms)
    text = (
        f"one connection puts {put_mib_s:.0f} and gets {get_mib_s:.0f} MiB/s;"
        f" {FIRST_BYTE_RANGE} bytes of it take {median_ms:.1f} ms, {worst_ms:.1f} at worst"
    )
    return passed(
        name,
        text,
        size_bytes=size_bytes,
        put_mib_per_s=round(put_mib_s, 1),
        get_mib_per_s=round(get_mib_s, 1),
        first_byte_ms=round(median_ms, 2),
        first_byte_ms_max=round(worst_ms, 2),
    )


async def probe_cleanup(bench: Bench) -> Finding:
    """Remove everything that was written, and look whether it is gone."""
    remaining = await bench.clear()
    if remaining:
        text = f"{len(remaining)} objects could not be removed; they are under {bench.prefix}"
        return warned("cleanup", text, objects=len(remaining))
    try:
        ghosts = [info.key async for info in bench.list(bench.prefix)]
    except (MQError, KeyError, TypeError, ValueError) as error:
        return warned("cleanup", f"each delete under {bench.prefix} succeeded, but no listing shows it ({error})")
    if ghosts:
        text = f"everything that was written is removed, but listings go on showing {len(ghosts)} of it"
        return noted("cleanup", text, ghosts=len(ghosts))
    return passed("cleanup", "everything that was written is removed")
