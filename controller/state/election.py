"""Election: which replica becomes the master.

    1. of the SyncStateSet, those alive
         the old master, unless another one is designated
         the designated one, or none
         the greatest epoch, then the greatest offset, then the smallest priority, then the smallest number
    2. if none of them is alive and unclean elections are allowed: the same over all replicas

RocketMQ subtracts offsets as 32-bit numbers and so takes the shorter log where two differ by 2 GiB and more; here they
are compared as they are.
Source: controller/elect/impl/DefaultElectPolicy.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thermocline.controller.state.live_table import LiveBroker

__all__ = ["elect"]


def elect(
    live: Callable[[int], LiveBroker | None],
    *,
    in_sync: Iterable[int],
    others: Iterable[int] | None,
    old_master: int | None,
    designated: int | None,
) -> int | None:
    """The number of the master to have; None: no replica may be it.

    `live`: the broker of a number, if it is alive. `others`: all replicas where an unclean election is allowed.
    """
    for candidates in (in_sync, others):
        if candidates is not None:
            elected = _elect_among(live, candidates, old_master=old_master, designated=designated)
            if elected is not None:
                return elected
    return None


def _elect_among(
    live: Callable[[int], LiveBroker | None],
    candidates: Iterable[int],
    *,
    old_master: int | None,
    designated: int | None,
) -> int | None:
    alive = {broker_id: broker for broker_id in candidates if (broker := live(broker_id)) is not None}
    if old_master in alive and designated in (None, old_master):
        return old_master
    if designated is not None:
        return designated if designated in alive else None
    if not alive:
        return None

    def rank(broker_id: int) -> tuple[int, int, int, int]:
        broker = alive[broker_id]
        return -broker.epoch, -broker.max_offset, broker.priority, broker_id

    return min(alive, key=rank)
