"""Private requests between these tools and a Thermocline broker: cold tier and TTL, which RocketMQ does not know.

They travel as ordinary remoting frames; header fields are strings as always, answers have a JSON body. An official
broker answers "request code not supported". The numbers stay clear of RocketMQ's own (up to 5001 and from 200050).

| code | header | JSON answer |
|---|---|---|
| TIER_STATUS | topic? | per queue: local range, cold range, waiting, TTL; the helpers' state |
| TIER_SEAL | topic? | what was sealed, once it is committed |
| TIER_EXPLAIN | topic, queueId? | where each range is, what happens next and why |
| TTL_PREVIEW | topic, ttlMs? | `segments`, `packs`, `messages`, `bytes` that would go, `requests`, what stays |
| TTL_EVIDENCE | topic | what has expired and is stored still, samples of it, and what the catalog names of it |
| TIER_SCRUB | deep?, heal?, afresh?, budgetBytes?, bytesPerSecond? | that it has begun: the same as the next |
| TIER_SCRUB_STATE | | `number`, `isRunning`, how far it is; when none runs `report`: the last one's findings |
| TIER_COST | topic?, forecast?, ttlMs?, segmentBytes?, sealAgeMs? | requests, bytes, storage; `forecast` |
| TTL_SET | topic, ttlMs? | the TTL now in force; no `ttlMs` clears it |
| FLUSHED_RANGES | topic | `storeUuid`, `incarnation`, and per queue what may be read and is durable |
| TIER_PURGE | topic | what was rewritten and deleted, and what is left; the topic may have been deleted |
"""

from __future__ import annotations

import enum

__all__ = ["TierRequestCode"]


class TierRequestCode(enum.IntEnum):
    """Request codes that only a Thermocline broker serves."""

    TIER_STATUS = 90101
    TIER_SEAL = 90102
    TIER_EXPLAIN = 90103
    TTL_PREVIEW = 90104
    TTL_SET = 90105
    TTL_EVIDENCE = 90106
    TIER_SCRUB = 90120
    TIER_SCRUB_STATE = 90121
    TIER_PURGE = 90130
    TIER_COST = 90140
    FLUSHED_RANGES = 90160
