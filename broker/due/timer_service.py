"""Timer service: puts messages whose time has come, or that have to be stored anew while they wait.

    timers.step -> drafts -> MessageAppender.append -> timers.confirm

Rules
  - At least once: unconfirmed drafts are returned again, and messages put since the timers' last round are put again
    after a crash. A clean stop repeats nothing.
  - A message that can never be put (its name is no topic's) is dropped, with a line in the log. Any other refused
    message is tried again; later ones wait for it.
  - While the log is paused for a full disk, these messages pass if local retention waits for the timers, as only
    deliveries and copies let the files go. Senders wait until there is room.
  - A damaged timer log stops deliveries until it is repaired; this is logged every ten seconds. No message is lost.
  - Work is done in slices of a few ms, then the loop serves others. When there is none, the task sleeps until the next
    message is due, or one is stored that has to get its slot; a second at most.
Owner: the hot process's event loop.
Source: TimerMessageStore.java (doPut), Apache RocketMQ 5.3.
"""

import asyncio
import contextlib
import logging

from thermocline.broker.sends import MessageAppender
from thermocline.broker.stats import StoreRates
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, MQError
from thermocline.store.log import CommitLog
from thermocline.store.retention import DISK_NEARLY_FULL
from thermocline.timers.due_message import DueMessage
from thermocline.timers.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

REST_MS_MAX = 1_000
GATHER_MS = 20
"""How long messages that were stored may gather before they get their slots."""
REFUSED_PAUSE_MS = 100
DAMAGED_PAUSE_MS = 10_000


class TimerService:
    """Delivers timed messages. `run` is its task; `deliver_slice` is what the task does."""

    def __init__(
        self, timers: TimerMessageStore, appender: MessageAppender, *, commit_log: CommitLog, rates: StoreRates
    ) -> None:
        """`rates` counts enqueued and delivered messages."""
        self._timers = timers
        self._appender = appender
        self._commit_log = commit_log
        self._rates = rates
        self._refusal = ""
        self._scheduled = asyncio.Event()
        timers.on_scheduled = self._scheduled.set

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._scheduled.clear()
            try:
                rest_ms = self.deliver_slice()
            except CorruptDataError as error:
                logger.error("timed messages are not delivered: %s", error)
                await asyncio.sleep(DAMAGED_PAUSE_MS / 1_000)
            except Exception:
                # A bug must not stop deliveries for good.
                logger.exception("delivery of timed messages failed, a bug of ours")
                await asyncio.sleep(DAMAGED_PAUSE_MS / 1_000)
            else:
                await self._rest(rest_ms)

    async def _rest(self, rest_ms: int) -> None:
        """Wait that long, or less when messages were stored."""
        if rest_ms == 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_ms / 1_000):
                await self._scheduled.wait()
                await asyncio.sleep(GATHER_MS / 1_000)

    def deliver_slice(self) -> int:
        """Put what is due, up to a slice; how long to rest afterwards, in ms, if nothing is stored meanwhile.

        Raises:
            CorruptDataError: The timers' files are damaged.
        """
        timers = self._timers
        due = timers.step()
        count = 0
        try:
            for message in due:
                if not self._put(message):
                    break
                count += 1
        finally:
            timers.confirm(count)
        status = timers.status()
        self._rates.timer_enqueued, self._rates.timer_delivered = status.enqueued_count, status.delivered_count
        if count < len(due):
            return REFUSED_PAUSE_MS
        return 0 if timers.has_more else max(1, min(timers.idle_ms, REST_MS_MAX))

    def _put(self, message: DueMessage) -> bool:
        """Put one message; False when it is to be tried again."""
        draft = message.draft
        try:
            with self._pass_if_it_makes_room():
                self._appender.append(draft)
        except InvalidRequestError as error:
            logger.warning(
                "timed message dropped kind=%s topic=%s physical_offset=%d error=%s",
                message.kind.value,
                draft.topic,
                message.physical_offset,
                error,
            )
        except MQError as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                logger.error("timed messages cannot be put now error=%s", error)
            return False
        if self._refusal:
            self._refusal = ""
            logger.info("timed messages are put again")
        return True

    def _pass_if_it_makes_room(self) -> contextlib.AbstractContextManager[None]:
        if self._commit_log.refusal == DISK_NEARLY_FULL and self._timers.is_release_wanted:
            return self._commit_log.let_through(DISK_NEARLY_FULL)
        return contextlib.nullcontext()
