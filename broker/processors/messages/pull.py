"""Pull: PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361.

    admission (pull_admission.py) -> finding (pull_finder.py) -> found: answer
                                                              -> nothing there yet: wait (long_polling.py)
                                                              -> a filter on properties: search, answer later
                                                              -> cold: ask the tier process, answer later

Rules
  - A pull that memory or the page cache can serve is answered in the call, without a task.
  - A pull that found nothing (code 19) and may wait is parked at its queue, for as long as its client says. It looks
    again whenever something arrives there, and answers when a tag matches; at the end of its time it answers with what
    there is. It waits once, and commits once. One that may not wait, because too many do, is answered SYSTEM_BUSY:
    official clients ask again in 3 s, whereas after "nothing there" they would ask at once.
  - A search by properties goes on in turns of the loop (loop_turns.py), beside everything else. A pull that waits keeps
    its place meanwhile, and whatever arrives then is searched before it waits on. More searches than the turns take
    are FLOW_CONTROL.
  - Cold pulls are bounded, in all and for one connection (cold_pull_limits.py): beyond, FLOW_CONTROL, upon which
    official clients ask again in 20 ms (before 5.0: in 3 s). A tier that is away is SYSTEM_BUSY (again in 3 s):
    never a corrected offset, or a client would skip history.
  - A pull of a static topic's logic queue reads one physical queue, here or on another broker, and is answered in
    offsets of the logic queue (pulls/static_pull.py). If its queue moves away while it waits, the answer makes the
    client pull again. Ordinary pulls pay a dictionary lookup for this, and none while no topic is static.
  - Where reads are spread over replicas, answers are subject to pulls/replica_reads.py.
  - One-way pulls make no sense and are not answered.
Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.cluster import PeerBrokers
from thermocline.broker.process import LoopTurns
from thermocline.broker.pulls import (
    Admission,
    ColdNeeded,
    ColdPullLimits,
    LongPolling,
    Place,
    PullAdmission,
    PullAnswer,
    PullFinder,
    PullForbiddenError,
    PullRequest,
    RemotePull,
    ReplicaReads,
    SearchNeeded,
    StaticPull,
    write_answer,
)
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import CompileNeeded, ConsumerOffsets, MessageFilters, StaticTopicTable
from thermocline.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import BrokerBusyError, MQError, ResponseError
from thermocline.remoting.header_codec import Int, decode_header
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.known_headers import KnownHeaders
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.log import GetStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import FilteredRuns

logger = logging.getLogger(__name__)

JSON_PULL = b'{"code":11,"'
JSON_LITE_PULL = b'{"code":361,'
JSON_PREFIX_BYTES = 12
"""How the header of a pull starts when its client writes the code first, as official ones do."""

BINARY_PULLS = {code.to_bytes(2, "big"): code for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)}
"""How a binary one starts -> its code."""

SUSPEND_MAX_MS = 600_000
UNDECIDED_WAIT_S = 0.5


class JsonPull(msgspec.Struct):
    """A pull's JSON header, decoded in one step."""

    code: Int
    ext_fields: PullMessageRequestHeader = msgspec.field(name="extFields")
    opaque: Int
    flag: Int = 0


decode_json_pull = msgspec.json.Decoder(JsonPull, strict=False).decode


class PullProcessor:
    """The pull family."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        static_topics: StaticTopicTable,
        peers: PeerBrokers,
        offsets: ConsumerOffsets,
        turns: LoopTurns,
        filters: MessageFilters,
        stats: BrokerStats,
        clock: Callable[[], int],
        admission: PullAdmission,
        finder: PullFinder,
        long_polling: LongPolling,
        limits: ColdPullLimits,
        quotas: QuotaTable,
        replica_reads: ReplicaReads,
    ) -> None:
        self._settings = settings
        self._store = store
        self._static_topics = static_topics
        self._offsets = offsets
        self._turns = turns
        self._filters = filters
        self._stats = stats
        self._clock = clock
        self._admission = admission
        self._finder = finder
        self._long_polling = long_polling
        self._limits = limits
        self._quotas = quotas
        self._replica_reads = replica_reads
        self._known_headers = KnownHeaders(
            PullMessageRequestHeader, ints=["queue_id"], longs=["queue_offset", "commit_offset"]
        )
        self._static_details = static_topics.details
        self._remote = RemotePull(peers)
        static_topics.add_listener(self._mapping_changed)

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Serve a pull in any serialisation."""
        request = PullRequest(
            connection,
            decode_header(PullMessageRequestHeader, command.ext_fields),
            code=command.code,
            opaque=command.opaque,
            serialize_type=command.serialize_type,
            user=command.user,
        )
        if command.is_oneway:
            return None
        header = request.header
        self._check(request)
        if header.topic in self._static_details and header.logical is not False:
            led = self._static_topics.led(header.topic, header.queue_id, is_logical=True)
            assert led is not None
            static = StaticPull(led, header.queue_offset)
            static.rewrite(header)
            request.static, request.offset = static, static.offset
            if not static.is_here:
                return self._pull_remote(request, static)
        try:
            admission = self._admission.admit(request)
        except CompileNeeded as needed:
            return self._compile_and_pull(connection, command, needed.text)
        except PullForbiddenError as error:
            response = error_response(command, error)
            response.ext_fields = {"forbiddenType": str(error.forbidden_type)}
            return response
        try:
            answer = self._finder.find(request, admission.wanted)
        except ColdNeeded:
            return self._pull_cold(command, request, admission)
        except SearchNeeded as needed:
            self._start_search(request, admission, needed.runs)
            return None
        self._answer_or_park(request, admission, answer)
        return None

    def pull_json(self, connection: Connection, header: bytes | memoryview, user: str = "") -> bool:
        """Serve a pull with this JSON header if that takes nothing but memory; False leaves it to `pull`."""
        try:
            decoded = decode_json_pull(header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if decoded.flag:
            return False
        return self._pull_at_once(
            PullRequest(
                connection,
                decoded.ext_fields,
                code=decoded.code,
                opaque=decoded.opaque,
                serialize_type=SerializeType.JSON,
                user=user,
            )
        )

    def pull_binary(self, connection: Connection, header: bytes, user: str = "") -> bool:
        """The same with a binary header."""
        decoded = self._known_headers.decode(header)
        if decoded is None:
            return False
        typed, opaque, flag = decoded
        if flag:
            return False
        return self._pull_at_once(
            PullRequest(
                connection,
                typed,
                code=BINARY_PULLS[header[:2]],
                opaque=opaque,
                serialize_type=SerializeType.ROCKETMQ,
                user=user,
            )
        )

    def _pull_at_once(self, request: PullRequest) -> bool:
        if self._static_details and request.header.topic in self._static_details:
            return False
        try:
            self._check(request)
            admission = self._admission.admit(request)
            answer = self._finder.find(request, admission.wanted)
        except SearchNeeded as needed:
            self._start_search(request, admission, needed.runs)
            return True
        except BrokerBusyError as error:  # a limit has counted it: ordinary code would count it again
            self._fail(request, error)
            return True
        except (ColdNeeded, CompileNeeded, MQError):
            return False
        self._answer_or_park(request, admission, answer)
        return True

    def _check(self, request: PullRequest) -> None:
        """Pass a pull. BrokerBusyError: a quota is used up, or this is a slave that is not to be read."""
        if self._replica_reads.is_on:
            self._replica_reads.check()
        quotas = self._quotas.current()
        if quotas is not None:
            header = request.header
            quotas.check_read(header.topic, header.consumer_group, request.connection.remote_host_bytes, request.user)

    def connection_closed(self, connection: Connection) -> None:
        """The client has disconnected: cancel its waiting pulls and its fetches."""
        self._long_polling.forget(connection)
        self._limits.forget(connection)

    async def _pull_remote(self, request: PullRequest, static: StaticPull) -> None:
        answer = static.logical(await self._remote.pull(request, static))
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            # It is not decided yet where the next part of the queue begins; official clients would ask at once.
            await asyncio.sleep(UNDECIDED_WAIT_S)
        write_answer(request.connection, answer, opaque=request.opaque, serialize_type=request.serialize_type)

    async def _pull_cold(
        self, command: RemotingCommand, request: PullRequest, admission: Admission
    ) -> RemotingCommand | None:
        if not self._limits.has_room(request.connection):
            return RemotingCommand.response(
                command, ResponseCode.FLOW_CONTROL, remark="too many pulls from the cold tier are on the way"
            )
        if request.connection.is_closed:
            return None  # it has left since it asked
        with self._limits.reading(request.connection):
            answer = await self._finder.find_cold(request, admission.wanted)
        self._write(request, admission, answer)
        return None

    async def _compile_and_pull(
        self, connection: Connection, command: RemotingCommand, expression: str
    ) -> RemotingCommand | None:
        await self._filters.compile_in_turn(expression)
        if connection.is_closed:
            return None  # it has left since it asked: nothing would forget its pull if it waited
        answer = self.pull(connection, command)
        return await answer if isinstance(answer, Awaitable) else answer

    def _start_search(self, request: PullRequest, admission: Admission, runs: FilteredRuns) -> None:
        if not self._turns.add(PullSearch(self, request, admission, runs).go_on):
            self._fail(
                request,
                ResponseError(code=ResponseCode.FLOW_CONTROL, remark="too many pulls with a filter are on the way"),
            )

    def _answer_or_park(self, request: PullRequest, admission: Admission, answer: PullAnswer) -> None:
        if self._replica_reads.is_on and not answer.message_count:
            self._replica_reads.apply(request, answer)  # before the pull waits: a slave may send it to its master
        code = answer.code if request.static is None else request.static.logical(answer).code
        if code == ResponseCode.PULL_NOT_FOUND and request.header.sys_flag & sys_flags.PULL_SUSPEND:
            config = self._settings.broker
            wait_ms = request.header.suspend_timeout_millis if config.long_polling else config.short_polling_ms
            request.is_first = False
            deadline_ms = self._clock() + max(0, min(wait_ms, SUSPEND_MAX_MS))
            waiting = WaitingPull(self, request)
            header = request.header
            waiting.place = self._long_polling.park(
                header.topic, header.queue_id, waiting, deadline_ms=deadline_ms, characters=request.characters
            )
            if waiting.place is not None:
                self._offsets.commit_pull(header.topic, header.consumer_group, header.queue_id, answer.next_offset)
            else:  # an empty answer would make its client ask again at once, and so without end
                self._fail(request, BrokerBusyError("too many pulls wait, system busy"))
            return
        self._write(request, admission, answer)

    def look_again(self, waiting: WaitingPull) -> bool:
        """Look for what a pull waits for; True when it is answered, False when it waits on, or is busy."""
        request = waiting.request
        static = request.static
        if static is not None and self._static_details.get(static.led.topic) is not static.led.detail:
            # Asked again, it is seen where the queue is now.
            self._write_logical(request, static, _nothing_up_to(request.offset))
            return True
        try:
            admission = self._admission.admit(request)
            try:
                answer = self._finder.find(request, admission.wanted)
            except SearchNeeded as needed:
                search = PullSearch(self, request, admission, needed.runs, waiting)
                waiting.is_busy = self._turns.add(search.go_on)
                if waiting.is_busy:
                    return False
                answer = _nothing_up_to(request.offset)
            except ColdNeeded:
                # What it waited at has left the local log meanwhile, or never was there: the next request has time.
                answer = _nothing_up_to(request.offset)
                waiting.is_last = True
            nothing = answer.code == ResponseCode.PULL_NOT_FOUND
            if nothing or answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                if not waiting.is_last:
                    request.offset = answer.next_offset
                    return False
                if nothing and request.offset > request.header.queue_offset:
                    # Messages came, but none for this group: let the client go on behind them.
                    answer.code = ResponseCode.PULL_RETRY_IMMEDIATELY
                    answer.status = GetStatus.NO_MATCHED_MESSAGE.value
            self._write(request, admission, answer)
        except CompileNeeded as needed:  # its group has another expression meanwhile
            waiting.is_busy = self._filters.compile_soon(needed.text, lambda: self._look_on(waiting))
            if waiting.is_busy or not waiting.is_last:
                return False
            self._fail(request, BrokerBusyError("too many expressions are to be compiled"))
        except Exception as error:  # noqa: BLE001 - the end of a pull: it becomes an answer
            self._fail(request, error)
        return True

    def search_ended(self, search: PullSearch) -> None:
        """A search has looked at all that it was to look at: answer, unless the pull goes on waiting."""
        request, waiting, runs = search.request, search.waiting, search.runs
        if waiting is not None and not waiting.is_last and not runs.message_count:
            request.offset = runs.next_offset
            self._look_on(waiting)
            return
        self._write(request, search.admission, self._finder.search_answer(runs))
        if waiting is not None:
            self._leave(waiting)

    def search_failed(self, search: PullSearch, error: Exception) -> None:
        """A search has met something that it cannot read."""
        self._fail(search.request, error)
        if search.waiting is not None:
            self._leave(search.waiting)

    def _fail(self, request: PullRequest, error: Exception) -> None:
        if not isinstance(error, MQError):
            logger.error("pull failed, a bug of ours", exc_info=error)
        command = RemotingCommand(
            code=request.code, opaque=request.opaque, flag=FLAG_RESPONSE, serialize_type=request.serialize_type
        )
        request.connection.send(error_response(command, error))

    def _write_logical(self, request: PullRequest, static: StaticPull, answer: PullAnswer) -> None:
        write_answer(
            request.connection,
            static.logical(answer),
            opaque=request.opaque,
            serialize_type=request.serialize_type,
        )

    def _mapping_changed(self, topic: str) -> None:
        """Wake the pulls that wait at the topic's queues."""
        self._long_polling.arrived(self._store.queues.of_topic(topic).values())

    def _look_on(self, waiting: WaitingPull) -> None:
        """A waiting pull has finished its search; more messages may have arrived since."""
        waiting.is_busy = False
        if self.look_again(waiting):
            self._leave(waiting)

    def _leave(self, waiting: WaitingPull) -> None:
        assert waiting.place is not None
        self._long_polling.leave(waiting.place)

    def _write(self, request: PullRequest, admission: Admission, answer: PullAnswer) -> None:
        header = request.header
        if self._replica_reads.is_on:
            self._replica_reads.apply(request, answer)
        quotas = self._quotas.current()
        if quotas is not None:
            address = request.connection.remote_host_bytes
            quotas.took(
                header.topic, header.consumer_group, address, request.user, requests=1, size_bytes=answer.size_bytes
            )
        self._offsets.commit_pull(header.topic, header.consumer_group, header.queue_id, answer.next_offset)
        if answer.message_count:
            self._stats.add_get(header.topic, header.consumer_group, answer.message_count, answer.size_bytes)
        else:
            self._stats.add_get_miss()
        answer.topic_sys_flag = admission.topic_sys_flag
        answer.group_sys_flag = admission.group_sys_flag
        if request.static is not None:
            answer = request.static.logical(answer)
        write_answer(request.connection, answer, opaque=request.opaque, serialize_type=request.serialize_type)


class WaitingPull:
    """A pull that waits at its queue. While it handles new messages, it needs no further wake-up."""

    __slots__ = ("_processor", "is_busy", "is_last", "place", "request")

    def __init__(self, processor: PullProcessor, request: PullRequest) -> None:
        self._processor = processor
        self.request = request
        self.place: Place | None = None
        self.is_busy = False
        self.is_last = False
        """Its time is up: it does not wait any longer."""

    @property
    def connection(self) -> Connection:
        """The client's connection."""
        return self.request.connection

    def look_again(self) -> bool:
        """Something arrived at the queue."""
        return not self.is_busy and self._processor.look_again(self)

    def time_is_up(self) -> None:
        """The client does not want to wait any longer."""
        self.is_last = True
        if not self.is_busy:
            self._processor.look_again(self)


class PullSearch:
    """A search by properties on behalf of a pull, one that waits or one that has just come."""

    __slots__ = ("_processor", "admission", "request", "runs", "waiting")

    def __init__(
        self,
        processor: PullProcessor,
        request: PullRequest,
        admission: Admission,
        runs: FilteredRuns,
        waiting: WaitingPull | None = None,
    ) -> None:
        self._processor = processor
        self.request = request
        self.admission = admission
        self.runs = runs
        self.waiting = waiting

    def go_on(self, is_time_up: Callable[[], bool]) -> bool:
        """Search until it has ended, the time is up, or the client has left."""
        request = self.request
        if request.connection.is_closed:
            return True
        try:
            if not self.runs.go_on(is_time_up):
                return False
        except Exception as error:  # noqa: BLE001 - the end of a pull: it becomes an answer
            self._processor.search_failed(self, error)
        else:
            self._processor.search_ended(self)
        return True


def _nothing_up_to(offset: QueueOffset) -> PullAnswer:
    """Let the client ask again."""
    return PullAnswer(
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        GetStatus.NO_MATCHED_MESSAGE.value,
        next_offset=offset,
        min_offset=offset,
        max_offset=offset,
    )
