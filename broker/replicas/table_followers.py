"""Table followers: groups, consumer offsets, delay levels, request modes, users and timers as the master has them.

Rules
  - A table is replaced all at once, and written before the call returns.
  - What the master does not have ends here, unless the master's version has a lower counter than the one here: such a
    table was not made from the one here, as of a master that has lost its disk.
  - Consumer offsets are compared each time: their version rises with every 500th commit only.
  - Consumer offsets, delay levels and the timer checkpoint count when the log here is so far, too (log_bound.py).
Source: broker/slave/SlaveSynchronize.java, Apache RocketMQ 5.5, which has no users and policies: its operators copy
them by `mqadmin copyUser` and `copyAcl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from thermocline.auth.auth_store import AuthStore
from thermocline.broker.due import DelayService
from thermocline.broker.replicas.followed_table import PERIOD_MS
from thermocline.broker.replicas.log_bound import LogBound
from thermocline.broker.replicas.master_metadata import MasterGroups, MasterMetadata
from thermocline.broker.replicas.offsets_text import TABLE, read_entries
from thermocline.broker.replicas.slices import run_in_slices
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import (
    ConsumerOffsets,
    GroupReplacement,
    GroupTable,
    OffsetReplacement,
    RequestModeTable,
    consumer_offsets,
)
from thermocline.remoting.bodies import DataVersion
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.timers.followed_timers import FollowedTimers

TIMER_PERIOD_MS = 3_000
"""A new master delivers again what came due since."""
CHECKPOINT_FILE_NAME = "timercheck"
METRICS_FILE_NAME = "timermetrics"


class GroupsFollower:
    """Follows how groups are set up, and what they may not do."""

    name = "groups"
    bound = None
    period_ms = PERIOD_MS

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        news = await master.groups(version=self._groups.data_version)
        if news is None:
            return False
        replacement = GroupReplacement()
        await run_in_slices(self._steps(news, replacement))
        await self._groups.replace(replacement, version=news.version)
        return True

    def _steps(self, news: MasterGroups, replacement: GroupReplacement) -> Iterator[None]:
        replacement.forbidden.update(news.forbidden)
        for config in news.groups.values():
            replacement.add(config)
            yield
        if news.version.counter < self._groups.data_version.counter:
            for name, config in list(self._groups.configs().items()):
                if name not in news.groups:
                    replacement.add(config)
                yield


class OffsetsFollower:
    """Follows consumer offsets, and which hand-offs they include."""

    name = "consumer offsets"

    def __init__(
        self, offsets: ConsumerOffsets, persister: ConfigPersister, *, log_end: Callable[[], PhysicalOffset]
    ) -> None:
        """`log_end`: the end of this broker's log, which the master's is never below."""
        self._offsets = offsets
        self._persister = persister
        self.bound = LogBound(log_end, period_ms=PERIOD_MS)

    @property
    def period_ms(self) -> int:
        """See FollowedTable."""
        return self.bound.period_ms

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        text = await self.bound.newest(master, master.consumer_offsets)
        log_offset = self.bound.asked_offset
        reading = _OffsetsReading(self._offsets)
        await run_in_slices(reading.steps(text))
        if reading.is_news:
            self._offsets.replace(
                reading.replacement, version=reading.version, hand_offs=reading.hand_offs, log_offset=log_offset
            )
        else:
            self._offsets.followed_log_offset = log_offset
        await self._persister.save_changed(consumer_offsets.FILE_NAME)
        return reading.is_news


class _OffsetsReading:
    """One answer with all consumer offsets, being read."""

    def __init__(self, present: ConsumerOffsets) -> None:
        self._present = present
        self.replacement = OffsetReplacement(present)
        self.version = DataVersion()
        self.hand_offs: dict[str, list[str]] = {}
        self.is_news = False

    def steps(self, text: bytes) -> Iterator[None]:
        """Read it, step by step.

        Raises:
            InvalidRequestError: It cannot be read.
        """
        present, replacement, changed_count = self._present, self.replacement, 0
        for entry in read_entries(text):
            if entry is None:
                pass
            elif entry.table == TABLE:
                changed_count += not replacement.add(entry.name, entry.text, entry.offsets)
            elif not entry.table and entry.name == "dataVersion":
                self.version = DataVersion.decode(entry.value)
            elif not entry.table and entry.name == "handOffs":
                self.hand_offs = loads_as(entry.value, dict[str, list[str]])
            yield
        if self.version.counter < present.data_version.counter:
            yield from replacement.keep_missing()
        self.is_news = bool(
            changed_count
            or len(replacement.offsets) != present.pair_count
            or self.version != present.data_version
            or self.hand_offs != present.hand_offs
        )


class DelayFollower:
    """Follows how far the delay levels are delivered."""

    name = "delay offsets"

    def __init__(self, delays: DelayService, *, log_end: Callable[[], PhysicalOffset]) -> None:
        """`log_end`: of this broker's log."""
        self._delays = delays
        self.bound = LogBound(log_end, period_ms=PERIOD_MS)

    @property
    def period_ms(self) -> int:
        """See FollowedTable."""
        return self.bound.period_ms

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        return await self._delays.follow(await self.bound.newest(master, master.delay_offsets))


class RequestModesFollower:
    """Follows which groups pop which topics."""

    name = "request modes"
    bound = None
    period_ms = PERIOD_MS

    def __init__(self, modes: RequestModeTable) -> None:
        self._modes = modes

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        return await self._modes.replace(await master.request_modes())


class UsersFollower:
    """Follows users and policies."""

    name = "users and policies"
    bound = None
    period_ms = PERIOD_MS

    def __init__(self, store: AuthStore) -> None:
        self._store = store

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        state = await master.users_and_policies()
        if not state.users:
            raise InvalidRequestError("the master has no users; those here are kept", master=master.address)
        if any(user.password is None for user in state.users):
            raise InvalidRequestError(
                "the master shows no passwords: this broker's credentials have to be a super user's",
                master=master.address,
            )
        return await self._store.replace(state)


class TimerCheckpointFollower:
    """Follows how far timed messages are delivered."""

    name = "timer checkpoint"

    def __init__(
        self,
        timers: FollowedTimers,
        persister: ConfigPersister,
        *,
        path: str,
        log_end: Callable[[], PhysicalOffset],
    ) -> None:
        """`path`: of the checkpoint, for messages. `log_end`: of this broker's log."""
        self._timers = timers
        self._persister = persister
        self.bound = LogBound(log_end, period_ms=TIMER_PERIOD_MS)
        persister.register(
            CHECKPOINT_FILE_NAME,
            path,
            lambda: timers.checkpoint.encode_shared(),
            write=timers.write_checkpoint,
        )

    @property
    def period_ms(self) -> int:
        """See FollowedTable."""
        return self.bound.period_ms

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        checkpoint = await self.bound.newest(master, master.timer_checkpoint)
        try:
            is_new = self._timers.follow_checkpoint(checkpoint)
        except ValueError as error:
            raise InvalidRequestError("the timer checkpoint cannot be read", reason=str(error)) from error
        if is_new:
            await self._persister.save(CHECKPOINT_FILE_NAME)
        return is_new


class TimerMetricsFollower:
    """Follows how many timed messages of each topic wait."""

    name = "timer metrics"
    bound = None
    period_ms = PERIOD_MS

    def __init__(self, timers: FollowedTimers, persister: ConfigPersister, *, path: str) -> None:
        """`path`: of the counts, for messages."""
        self._timers = timers
        self._persister = persister
        persister.register(METRICS_FILE_NAME, path, lambda: timers.metrics, write=timers.write_metrics)

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        is_new = self._timers.follow_metrics(await master.timer_metrics())
        if is_new:
            await self._persister.save(METRICS_FILE_NAME)
        return is_new
