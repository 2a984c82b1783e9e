"""SteadyReport: the progress of the steady scrub, as the tier process reports it."""

from __future__ import annotations

import msgspec


class SteadyReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far the scrub that runs by itself has come (tiered/scrub/steady_scrub.py). `bytes_per_day` 0: it is off.

    `pass_*` and `read_*`: the present pass, or the last one when `is_pass_over`; 0: none has begun. `whole_*`: the last
    pass that has read everything. `remaining_bytes`, `days_needed`: None while they were not worked out. `broken`: keys
    of broken objects, some of them.
    """

    bytes_per_day: int
    pass_started_ms: int
    is_pass_over: bool
    whole_started_ms: int
    whole_ended_ms: int
    read_count: int
    read_bytes: int
    read_bytes_total: int
    remaining_bytes: int | None
    days_needed: float | None
    is_too_slow: bool
    is_store_away: bool
    error: str
    broken_count: int
    broken: list[str]
