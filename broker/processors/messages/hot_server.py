"""Hot server: the message path of the hot process.

    received chunk -> sends: store/sends/fast_path.py      -> acknowledgements -> replies, waiting pulls are woken
                      (a chunk that is one send waits for those of other connections in the same round of the loop)
                   -> pulls: processors/pull.py      -> replies, or they wait
                   -> anything else: dispatcher -> processors

With access control a guard checks each of these sends and pulls. It refuses sends of users that have no right to them;
what else it does not allow is left to the dispatcher.

`HotServer` is what the RemotingServer is given as chunk handler. `tick` is to be called every TICK_MS; `start` does so
in a task of its own.

Rules
  - Of one connection everything is handled in the order in which it came: whatever comes behind a send that waits for
    the end of its round ends that round first.
  - The settings that the fast path depends on are compared by identity once a chunk; a change of configuration takes
    effect with the next chunk.
  - While sends are not accepted (time of start, broker without write permission, too much waiting, or for too long),
    the fast path stands aside and ordinary code answers each of them. On a slave it does so always.
Belongs to the hot process's loop thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.processors.messages.pull import (
    BINARY_PULLS,
    JSON_LITE_PULL,
    JSON_PREFIX_BYTES,
    JSON_PULL,
    PullProcessor,
)
from thermocline.broker.pulls import TICK_MS, LongPolling
from thermocline.broker.sends import Acknowledgements, SendTargets
from thermocline.broker.settings import PERM_WRITE, CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.remoting.command import SerializeType
from thermocline.remoting.connections import Connection
from thermocline.remoting.frames import FRAME_HEAD, LENGTH
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.store.log import run_in_executor
from thermocline.store.message_store import MessageStore
from thermocline.store.sends import (
    BINARY_CODES,
    CODE_BYTES,
    FRAME_HEAD_BYTES,
    HEADER_BYTES_MASK,
    JSON_FORMS,
    PREFIX_BYTES,
    FastPath,
    FastPathSettings,
    RefusedSend,
    SendGuard,
)

logger = logging.getLogger(__name__)

POSITION_SERIALIZE_TYPE = 4
"""Of a frame: the high byte of its header word."""

UNSENT_BYTES_MAX = 1 << 20
"""With more unsent on its connection a pull is left to ordinary code, where the connection stops reading."""

JSON, BINARY = SerializeType.JSON.value, SerializeType.ROCKETMQ.value
"""Values of that byte."""

SEND, PULL = "send", "pull"
JSON_KINDS = dict.fromkeys(JSON_FORMS, SEND) | dict.fromkeys((JSON_PULL, JSON_LITE_PULL), PULL)
BINARY_KINDS = dict.fromkeys(BINARY_CODES, SEND) | dict.fromkeys(BINARY_PULLS, PULL)
"""How a request's header starts -> what it is."""

assert PREFIX_BYTES == JSON_PREFIX_BYTES
assert FRAME_HEAD_BYTES + PREFIX_BYTES > POSITION_SERIALIZE_TYPE


class MessageGuard(SendGuard, Protocol):
    """Access control of the message path: broker/access/message_guard.py."""

    def allow_pull(self, connection: Connection, header: bytes, *, is_json: bool) -> str | None:
        """The name of the user of a pull with this header that is allowed beyond doubt; else None."""
        ...


class HotServer:
    """The fast path of sends and pulls."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        stats: BrokerStats,
        clock: Callable[[], int],
        steady_clock: Callable[[], int],
        store_host: tuple[str, int],
        targets: SendTargets,
        acknowledgements: Acknowledgements,
        pulls: PullProcessor,
        long_polling: LongPolling,
        unique_ids: UniqueIdGenerator,
        choose_queue: Callable[[int], int],
        quotas: QuotaTable,
        guard: MessageGuard | None = None,
    ) -> None:
        """On the loop. `choose_queue(count)` gives the queue of a message that names none."""
        self._guard = guard
        self._settings = settings
        self._store = store
        self._stats = stats
        self._clock = clock
        self._steady_clock = steady_clock
        self._store_host = store_host
        self._targets = targets
        self._acknowledgements = acknowledgements
        self._waits_to_answer = acknowledgements.waits
        self._is_slave = settings.broker.is_slave
        self._pulls = pulls
        self._long_polling = long_polling
        self._unique_ids = unique_ids
        self._choose_queue = choose_queue
        self._quotas = quotas
        self._config = settings.broker
        self._fast_path = self._make_fast_path()
        self._loop = asyncio.get_running_loop()
        self._round: dict[Connection, bytes] = {}  # one send of each connection, whole frames
        self._round_is_ending = False
        self._declined: Connection | None = None
        """With access control: its first frame was declined just now, in a round; ordinary code is to serve it."""
        self._flush_executor: ThreadPoolExecutor | None = None
        self._ticker: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Flush in a helper thread from now on, and keep time. On the loop."""
        assert self._ticker is None
        loop = asyncio.get_running_loop()
        self._flush_executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="log-flush")
        self._store.flush.use(run_in_executor(loop, self._flush_executor))
        self._ticker = loop.create_task(self._keep_time())

    async def close(self) -> None:
        """Stop keeping time; a flush in flight ends first. The store stays open. Idempotent."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait([self._ticker])
            self._ticker = None
        if self._flush_executor is not None:
            executor, self._flush_executor = self._flush_executor, None
            await asyncio.get_running_loop().run_in_executor(None, executor.shutdown)

    def tick(self, now_ms: int) -> bool:
        """Answer waiters whose time is up, by the steady clock; True if there are more than one call should serve."""
        self._acknowledgements.expire(now_ms)
        return self._long_polling.expire(now_ms)

    def came_late(self, late_ms: int) -> None:
        """The loop has come to a tick so much too late: for so long sends have had to wait."""
        self._acknowledgements.ticked(late_ms)

    # -- ChunkHandler --------------------------------------------------------------------------------------------------

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """Take the common sends and pulls at the front of `buffer`; bytes of whole frames taken."""
        if connection in self._round:
            self.end_round()
        if self._is_slave:
            return 0
        if self._declined is connection:
            self._declined = None
            return 0
        position = 0
        was_send = False
        while len(buffer) - position > FRAME_HEAD_BYTES + PREFIX_BYTES:
            header_start = position + FRAME_HEAD_BYTES
            serialize_type = buffer[position + POSITION_SERIALIZE_TYPE]
            if serialize_type == JSON:
                kind = JSON_KINDS.get(bytes(buffer[header_start : header_start + PREFIX_BYTES]))
            elif serialize_type == BINARY:
                kind = BINARY_KINDS.get(bytes(buffer[header_start : header_start + CODE_BYTES]))
            else:
                break
            if kind is SEND:
                if was_send:
                    break  # the fast path has stopped here: the frame is not whole, or not a common one
                if not position and self._keep_for_round(connection, buffer):
                    return len(buffer)
                taken = self._feed_sends(connection, buffer[position:] if position else buffer)
                was_send = True
            elif kind is PULL and connection.unsent_bytes <= UNSENT_BYTES_MAX:
                taken = self._feed_pull(connection, buffer, position)
                was_send = False
            else:
                break
            if not taken:
                break
            position += taken
        return position

    def end_round(self) -> None:
        """Handle the sends that wait for others of their round; the loop calls it once it has read what came."""
        waiting, self._round = self._round, {}
        if not waiting:
            return
        self._round_is_ending = True
        try:
            remaining = self._feed_round(waiting) if self._is_ready() else waiting
            for connection, frame in remaining.items():
                self._declined = connection if self._guard is not None else None
                connection.handle_frames(frame)
        except Exception:  # their peers must not wait for answers that never come
            logger.exception("connections dropped, a bug of ours count=%d", len(waiting))
            for connection in waiting:
                connection.abort()
        finally:
            self._round_is_ending = False
            self._declined = None

    def _keep_for_round(self, connection: Connection, buffer: memoryview) -> bool:
        """Keep a chunk that is one whole send until the end of the round; False when it is more, or less."""
        if self._round_is_ending or LENGTH.unpack_from(buffer)[0] + LENGTH.size != len(buffer):
            return False
        if not self._round:
            self._loop.call_soon(self.end_round)
        self._round[connection] = bytes(buffer)
        return True

    def _feed_round(self, waiting: dict[Connection, bytes]) -> dict[Connection, bytes]:
        """Store and answer the sends that the fast path accepts; return the others."""
        result = self._fast_path.feed_frames(
            [(frame, connection.remote_host_bytes) for connection, frame in waiting.items()]
        )
        if result.refused:
            connections = list(waiting)
            for refused in result.refused:
                self._answer_refused(connections[refused.place], [refused], result.now_ms)
        remaining: dict[Connection, bytes] = {}
        answers: list[tuple[Connection, bytes]] = []
        for connection, answer in zip(waiting, result.answers, strict=True):
            if answer is None:
                remaining[connection] = waiting[connection]
            elif answer:
                answers.append((connection, answer))
        if result.queues:
            self._acknowledgements.answer_frames(answers, result.queues, append_end=result.append_end)
        return remaining

    def _feed_sends(self, connection: Connection, buffer: memoryview) -> int:
        if not self._is_ready():
            return 0
        result = self._fast_path.feed(buffer, connection.remote_host_bytes)
        if result.refused:
            self._answer_refused(connection, result.refused, result.now_ms)
        if result.queues:
            self._acknowledgements.answer_chunk(connection, result.replies, result.queues, append_end=result.append_end)
        return result.consumed

    def _answer_refused(self, connection: Connection, refused: Sequence[RefusedSend], now_ms: int) -> None:
        for each in refused:
            each.refusal.note(now_ms)
        if answers := b"".join([each.answer for each in refused]):
            connection.write(answers)

    def _feed_pull(self, connection: Connection, buffer: memoryview, position: int) -> int:
        frame_bytes, header_word = FRAME_HEAD.unpack_from(buffer, position)
        header_start = position + FRAME_HEAD_BYTES
        header_end = header_start + (header_word & HEADER_BYTES_MASK)
        frame_end = position + LENGTH.size + frame_bytes
        if frame_end > len(buffer) or header_end != frame_end:
            return 0
        is_json = header_word <= HEADER_BYTES_MASK
        user = ""
        if self._guard is not None:
            allowed = self._guard.allow_pull(connection, bytes(buffer[header_start:header_end]), is_json=is_json)
            if allowed is None:
                return 0
            user = allowed
        if is_json:
            is_taken = self._pulls.pull_json(connection, buffer[header_start:header_end], user)
        else:
            is_taken = self._pulls.pull_binary(connection, bytes(buffer[header_start:header_end]), user)
        return int(frame_end - position) if is_taken else 0

    # -- inside --------------------------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        """Whether sends are accepted just now; the fast path follows the settings."""
        config = self._settings.broker
        if config is not self._config:
            self._config = config
            self._fast_path = self._make_fast_path()
        return (
            bool(config.permission & PERM_WRITE)
            and (not config.accept_sends_from_ms or config.accept_sends_from_ms <= self._clock())
            and self._acknowledgements.has_room()
        )

    def _make_fast_path(self) -> FastPath:
        config = self._config
        return FastPath(
            self._store,
            self._targets.table,
            settings=FastPathSettings(
                store_host=self._store_host,
                region_id=config.region_id,
                trace_on=config.trace_on,
                cluster_name=config.cluster_name,
                body_bytes_max=self._store.config.message_bytes_max,
                waits_to_answer=self._waits_to_answer,
            ),
            choose_queue=self._choose_queue,
            put_meter=self._stats.put_meter,
            on_stored=self._stats.add_stored,
            unique_ids=self._unique_ids,
            quota=self._quotas.current(),
            guard=self._guard,
        )

    async def _keep_time(self) -> None:
        while True:
            due_s = self._loop.time() + TICK_MS / 1000
            await asyncio.sleep(TICK_MS / 1000)
            try:
                self.came_late(int((self._loop.time() - due_s) * 1000))
                while self.tick(self._steady_clock()):  # noqa: ASYNC110 - lets requests in between two slices
                    await asyncio.sleep(0)
            except Exception:  # a bug of ours must not leave every waiting pull without an end
                logger.exception("tick failed, a bug of ours")
