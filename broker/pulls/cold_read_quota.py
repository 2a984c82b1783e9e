"""Cold read quota: how many bytes of history a consumer group may read from the cold tier in one window.

    window      5 s; what a group and all groups together have read counts in it, and is forgotten at its end
    threshold   of a group: the one an operator gave it (`updateColdDataFlowCtrGroupConfig`), else
                `cgColdReadThreshold`; of all: `globalColdReadThreshold`

With `coldDataFlowControlEnable` a pull from the cold tier waits for the next window once its group, or all groups
together, have reached their threshold. So a group that replays years does not block the tier process for others. Local
reads, and those of system groups, by which operators' tools read, neither wait nor count. Thresholds of groups are in
memory only, as in RocketMQ: operators set them during an incident. Bound: THRESHOLDS_MAX groups, of names that a
group may have.
Owner: the hot process's event loop. No task of its own: a window's end is noticed by the next call.
Source: broker/coldctr/ColdDataCgCtrService.java, Apache RocketMQ 5.3, where "cold" means "not in memory".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError
from thermocline.remoting.topic_validation import GROUP_CHARACTERS_MAX, is_system_group

WINDOW_MS = 5_000
THRESHOLDS_MAX = 10_000
SHOWN_MS = 60_000
"""A group is shown for so long after it read last."""


class GroupReads(msgspec.Struct, kw_only=True):
    """The reads of one group: bytes in this window, since when it is shown, and the last read."""

    window_bytes: int
    first_ms: int
    last_ms: int


class ColdReadQuota:
    """Counts cold reads by group, and delays groups that have reached their threshold."""

    def __init__(self, *, config: Callable[[], BrokerConfig], clock: Callable[[], int]) -> None:
        self._config = config
        self._clock = clock
        self._window_end_ms = clock() + WINDOW_MS
        self._thresholds: dict[str, int] = {}
        self._groups: dict[str, GroupReads] = {}
        self._all_bytes = 0

    @property
    def thresholds(self) -> Mapping[str, int]:
        """Bytes a window, of the groups that were given a threshold of their own."""
        return self._thresholds

    @property
    def all_bytes(self) -> int:
        """The bytes that all groups have read in this window."""
        self._roll()
        return self._all_bytes

    def groups(self) -> Mapping[str, GroupReads]:
        """The groups that read lately."""
        self._roll()
        return self._groups

    def set_thresholds(self, thresholds: Mapping[str, int]) -> None:
        """Give groups thresholds of their own.

        Raises:
            InvalidParameterError: A name is too long; none of them is set.
            BrokerBusyError: There would be too many; none of them is set.
        """
        for group in thresholds:
            if len(group) > GROUP_CHARACTERS_MAX:
                raise InvalidParameterError("the name of a group is too long", characters=len(group))
        if len(self._thresholds.keys() | thresholds.keys()) > THRESHOLDS_MAX:
            raise BrokerBusyError("too many groups have a threshold of their own", most=THRESHOLDS_MAX)
        self._thresholds.update(thresholds)

    def remove_threshold(self, group: str) -> None:
        """Remove a group's own threshold; the common one then applies. No error without one."""
        self._thresholds.pop(group, None)

    def add(self, group: str, bytes_: int) -> None:
        """A group was given so many bytes from the cold tier. Those of system groups, by which tools read, do not
        count."""
        if is_system_group(group):
            return
        self._roll()
        now_ms = self._clock()
        reads = self._groups.get(group)
        if reads is None:
            reads = self._groups[group] = GroupReads(window_bytes=0, first_ms=now_ms, last_ms=now_ms)
        reads.window_bytes += bytes_
        reads.last_ms = now_ms
        self._all_bytes += bytes_

    def is_used_up(self, group: str) -> bool:
        """Whether a group has to wait for the next window."""
        config = self._config()
        if not config.cold_flow_control:
            return False
        self._roll()
        reads = self._groups.get(group)  # of a system group there is none
        if reads is None:
            return False
        threshold = self._thresholds.get(group, config.cold_read_threshold)
        return reads.window_bytes >= threshold or self._all_bytes >= config.cold_read_threshold_global

    async def wait(self, group: str) -> None:
        """Wait until a group may read; at once if it may. Cancelling is safe."""
        while self.is_used_up(group):  # noqa: ASYNC110 - a window ends with time, without an event
            await asyncio.sleep(max(1, self._window_end_ms - self._clock()) / 1000)

    def _roll(self) -> None:
        now_ms = self._clock()
        if now_ms < self._window_end_ms:
            return
        self._window_end_ms = now_ms + WINDOW_MS
        self._all_bytes = 0
        self._groups = {name: reads for name, reads in self._groups.items() if now_ms - reads.last_ms < SHOWN_MS}
        for reads in self._groups.values():
            reads.window_bytes = 0
