"""Fast path: the common send, many at a time.

    feed(chunk)         -> consumed, replies, append end, queues       many frames of one connection
    feed_frames(frames) -> answers, append end, queues                 one frame of each of many connections

All frames are parsed, turned into records, appended with one write, given their consume queue units and answered, under
one time stamp. It stops ("punts") at the first frame of a chunk that it does not fully understand; ordinary code
handles that one whole, then `feed` goes on behind it. So all semantics live once, in ordinary code
(`broker/processors/messages/send.py`), and a differential test holds the two together: same frames, same bytes.

Taken here: SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE with a binary header, or a JSON header that starts with
its code (`send_header.py`; every official client's does), for a topic in `targets`, to a queue that exists, over IPv4,
with a property text that is plain (`send_properties.is_plain`), and whose records fit the rest of the log's tail file.
A message without a UNIQ_KEY is given one, as in ordinary code. docs/hot-path.md lists which client's sends these are.

    frame   int32 bytes that follow | int8 serialisation, int24 header bytes | header | body
    record  see remoting/records/message_record.py; what follows the born timestamp is one constant per chunk
    batch   see remoting/records/batch.py and fast_batch.py; each message in it becomes a record of its own

Rules
  - Everything that can refuse a frame is looked at before anything is changed for it. What can still fail afterwards is
    the append to the log: then the queues are put back, nothing is consumed, and ordinary code answers each frame.
  - The log is written before any reader can see a queue unit: there is no await in `feed` or `feed_frames`.
  - No message costs a dictionary, a regular expression or a system call of its own.

Belongs to the hot process's loop thread. A compiled twin would stand behind the same `feed`.
Source: SendMessageProcessor.java, MessageExtEncoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from thermocline.remoting.command import FLAG_ONEWAY
from thermocline.remoting.errors import MQError
from thermocline.remoting.frames import FRAME_HEAD, LENGTH
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.crc32 import crc32
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.records.message_record import CHECKSUM_MASK, MAGIC_V1, TOPIC_BYTES_MAX_V1, encode_host
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX, VALUE_END, decode_properties
from thermocline.remoting.records.record_layout import HOST_V4_BYTES
from thermocline.remoting.records.sys_flag import COMPRESSED, COMPRESSION_MASK
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import UNIT, ConsumeQueue
from thermocline.store.sends.fast_batch import BatchPlace, make_records
from thermocline.store.sends.record_head import CHUNK_FIELDS, RECORD_HEAD
from thermocline.store.sends.send_header import (
    BINARY_BIT,
    CODE_BYTES,
    HEADER_BYTES_MASK,
    JSON_FORMS,
    PREFIX_BYTES,
    SIGNED_JSON_FORMS,
    Decode,
    SendRequest,
    binary_forms,
    signed_binary_forms,
)
from thermocline.store.sends.send_properties import (
    UNIQUE_KEY_MARK,
    TagsCodes,
    broker_suffix,
    encode_text,
    is_plain,
    split_unique_key,
)
from thermocline.store.sends.send_reply import SendReplies

logger = logging.getLogger(__name__)

FRAME_HEAD_BYTES = FRAME_HEAD.size
LENGTH_BYTES = LENGTH.size
PROPERTIES_SIZE_BYTES = 2
JSON_START = b"{"
"""Of a header in JSON; one in binary starts with its code, which is below it."""
OTHER_SYS_FLAGS = ~(COMPRESSED | COMPRESSION_MASK)
"""All bits of a system flag but those that change nothing for the broker."""
OTHER_FLAGS = ~FLAG_ONEWAY
"""All bits of a request's flag but this one."""

unpack_frame_head = FRAME_HEAD.unpack_from
pack_frame_head = FRAME_HEAD.pack
pack_chunk_fields = CHUNK_FIELDS.pack
pack_record_head = RECORD_HEAD.pack
pack_unit = UNIT.pack


class PutMeter(Protocol):
    """Counts what is put into a topic."""

    def add(self, count: int, bytes_: int) -> None:
        """`count` messages, of so many record bytes in all, were put at once."""
        ...


class SendQuota(Protocol):
    """Bounds sends by their rate."""

    def take_send(self, topic: str, group: str, address: bytes, size_bytes: int, user: str) -> bool:
        """Count a send, if it may pass. `user`: empty without access control."""
        ...

    def return_send(self, topic: str, group: str, address: bytes, size_bytes: int, user: str) -> None:
        """A send that was counted is left to ordinary code, which counts it again."""
        ...


class SendRefusal(Protocol):
    """The answer to sends that access control does not allow."""

    def answer(self, opaque: int, *, is_binary: bool) -> bytes:
        """The frame of the answer to a send with this opaque."""
        ...

    def note(self, now_ms: int) -> None:
        """Count a send that is refused so."""
        ...


class RefusedHeader(NamedTuple):
    """What the answer to a send that is refused needs of its header."""

    refusal: SendRefusal
    opaque: int
    flag: int


class SendGuard(Protocol):
    """Access control."""

    def may_judge(self) -> bool:
        """Whether sends may be judged now; else all are for ordinary code."""
        ...

    @property
    def suspects(self) -> Collection[bytes]:
        """Peers whose last send had no valid signature: it is asked first whether the next one has."""
        ...

    def judge_send(self, request: SendRequest, body: bytes, born_host: bytes) -> str | SendRefusal | None:
        """The name of the user that may send this, or the refusal; None if ordinary code is to decide. `born_host` is
        the peer's."""
        ...

    def refuse_unsigned(self, header: bytes, body: bytes, born_host: bytes, *, is_json: bool) -> RefusedHeader | None:
        """The refusal of a send without a valid signature; None if it has one, or ordinary code is to decide."""
        ...


class RefusedSend(NamedTuple):
    """A send that was not allowed: the place of its frame in the call, and its answer, empty for a one-way send."""

    place: int
    refusal: SendRefusal
    answer: bytes


class SendTarget:
    """A topic as the fast path sees it. The broker's topic table replaces it when the topic changes."""

    __slots__ = ("meter", "queue_count", "queues", "record_bytes", "topic", "topic_field", "write_queue_count")

    def __init__(
        self, topic: str, *, queues: Mapping[int, ConsumeQueue], queue_count: int, write_queue_count: int
    ) -> None:
        """`queues`: the store's own table of the topic's queues; those not in it yet are made by ordinary code."""
        name = topic.encode()
        assert 0 < len(name) <= TOPIC_BYTES_MAX_V1
        assert write_queue_count <= queue_count
        self.topic = topic
        self.meter: PutMeter | None = None  # made at the first put
        self.topic_field = bytes((len(name),)) + name
        self.record_bytes = RECORD_HEAD.size + len(self.topic_field) + PROPERTIES_SIZE_BYTES
        self.queues = queues
        self.queue_count = queue_count
        self.write_queue_count = write_queue_count


class FastPathSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's values for the fast path. `store_host` is the address that clients reach the broker at."""

    store_host: tuple[str, int]
    region_id: str
    trace_on: bool
    cluster_name: str
    body_bytes_max: int
    waits_to_answer: bool
    """Whether sends are answered some time after they are in the log, but those that say WAIT=false."""


class FeedResult:
    """The result of one call: the log's end behind the last record, and the queue of each message. Of a chunk: bytes of
    whole frames consumed, and the replies, whole frames in order. Of frames: the answer to each, empty for a one-way
    send, None when it was not taken. Sends that were refused have their answers in `refused` alone: those do not wait
    for the flush. The rest is for the fast path itself."""

    __slots__ = (
        "answers",
        "append_end",
        "append_start",
        "consumed",
        "data",
        "fields",
        "limit",
        "now_ms",
        "parts",
        "puts",
        "queues",
        "refused",
        "replies",
        "run_append_start",
        "run_start",
        "run_target",
    )

    def __init__(self, *, append_start: PhysicalOffset, limit: PhysicalOffset, now_ms: int) -> None:
        self.append_start = append_start
        self.append_end = append_start
        self.limit = limit
        self.now_ms = now_ms
        self.consumed = 0
        self.replies: list[bytes] = []
        self.answers: list[bytes | None] = []
        self.refused: list[RefusedSend] = []
        self.queues: list[ConsumeQueue] = []
        self.parts: list[bytes] = []
        self.puts: list[tuple[SendTarget, int, int]] = []  # so many messages, record bytes in all
        self.run_target: SendTarget | None = None
        self.run_start = 0  # messages before the run that is not among the puts yet
        self.run_append_start = append_start
        self.data = b""
        self.fields = b""

    def end_run(self, target: SendTarget | None) -> None:
        """Messages since the last call are one put; the next ones belong to `target`."""
        count = len(self.queues)
        if count > self.run_start and self.run_target is not None:
            self.puts.append((self.run_target, count - self.run_start, self.append_end - self.run_append_start))
        self.run_target = target
        self.run_start = count
        self.run_append_start = self.append_end


class FastPath:
    """See the module. A call takes at most a receive buffer of one connection, or a frame of each: it is bounded."""

    def __init__(
        self,
        store: MessageStore,
        targets: Mapping[str, SendTarget],
        *,
        settings: FastPathSettings,
        choose_queue: Callable[[int], int],
        put_meter: Callable[[str], PutMeter],
        on_stored: Callable[[int, int], None],
        unique_ids: UniqueIdGenerator,
        quota: SendQuota | None = None,
        guard: SendGuard | None = None,
    ) -> None:
        """`choose_queue(count)` gives the queue of a message that names none, `unique_ids` the key of one without;
        `put_meter(topic)` what counts the puts of a topic; `on_stored(count, bytes)` receives the messages and
        bytes stored by each call; `quota`: None when no quota is set."""
        self._quota = quota
        self._clock = store.clock
        self._log = store.commit_log
        self._dirty = store.queues.dirty
        self._mark_dirty = self._dirty.add
        self._targets = targets
        self._choose_queue = choose_queue
        self._put_meter = put_meter
        self._on_stored = on_stored
        self._unique_ids = unique_ids
        self._guard = guard
        self._json_forms = JSON_FORMS if guard is None else SIGNED_JSON_FORMS
        self._binary_forms = binary_forms() if guard is None else signed_binary_forms()
        self._store_host = encode_host(settings.store_host)
        self._is_enabled = len(self._store_host) == HOST_V4_BYTES
        self._suffix = broker_suffix(
            region_id=settings.region_id, trace_on=settings.trace_on, cluster_name=settings.cluster_name
        )
        self._body_bytes_max = settings.body_bytes_max
        self._waits_to_answer = settings.waits_to_answer
        self._replies = SendReplies(
            store_host=self._store_host, region_id=settings.region_id, trace_on=settings.trace_on
        )
        self._json_reply = self._replies.json_single
        self._tags_codes = TagsCodes()
        self._remembered_tags_code = self._tags_codes.remembered

    def feed(self, buffer: memoryview, born_host: bytes) -> FeedResult:
        """Take the frames at the start of `buffer`; `born_host` is the peer's address and port as a record holds it."""
        result = self._begin()
        result.consumed = self._take_frames(result, bytes(buffer), born_host)
        self._commit(result)
        return result

    def feed_frames(self, frames: Iterable[tuple[bytes, bytes]]) -> FeedResult:
        """Take whole frames, each with the address and port of the peer that sent it."""
        result = self._begin()
        replies = result.replies
        answers = result.answers
        for frame, born_host in frames:
            if not self._take_frames(result, frame, born_host):
                answers.append(None)
            elif replies:
                answers.append(replies.pop())
            else:
                answers.append(b"")
        self._commit(result)
        return result

    def _begin(self) -> FeedResult:
        log = self._log
        append_start = log.append_offset
        is_open = self._is_enabled and log.refusal is None and (self._guard is None or self._guard.may_judge())
        return FeedResult(
            append_start=append_start,
            limit=append_start + log.room_bytes if is_open else append_start,
            now_ms=self._clock.now_ms(),
        )

    def _take_frames(self, result: FeedResult, data: bytes, born_host: bytes) -> int:
        """Take the frames at the start of `data`; their bytes."""
        if len(born_host) != HOST_V4_BYTES or result.limit == result.append_start:
            return 0
        data_bytes = len(data)
        result.data = data
        result.fields = pack_chunk_fields(born_host, result.now_ms, self._store_host, 0, 0)
        targets = self._targets
        json_forms = self._json_forms
        guard = self._guard
        waits_to_answer = self._waits_to_answer
        body_bytes_max = self._body_bytes_max
        quota = self._quota
        run_target = result.run_target
        user = ""
        position = 0
        while position + FRAME_HEAD_BYTES <= data_bytes:
            frame_bytes, header_word = unpack_frame_head(data, position)
            header_start = position + FRAME_HEAD_BYTES
            frame_end = position + LENGTH_BYTES + frame_bytes
            if 0 <= header_word <= HEADER_BYTES_MASK:
                header_end = header_start + header_word
                decode = json_forms.get(data[header_start : header_start + PREFIX_BYTES])
            else:
                header_end = header_start + (header_word & HEADER_BYTES_MASK)
                is_binary = header_word & ~HEADER_BYTES_MASK == BINARY_BIT
                decode = self._binary_forms.get(data[header_start : header_start + CODE_BYTES]) if is_binary else None
            if decode is None or frame_end > data_bytes or header_end > frame_end:
                break
            request: SendRequest | None
            if guard is not None:
                judged = self._judge(result, decode, data, header_start, header_end, frame_end, born_host)
                if judged is None:
                    break
                request, user = judged
                if request is None:
                    position = frame_end
                    continue
            else:
                try:
                    request = decode(data[header_start:header_end])
                except msgspec.DecodeError:
                    break
                if request is None:
                    break
            header = request.ext_fields
            text = header.properties or ""
            target = targets.get(header.topic)
            if (
                target is None
                or header.queue_id >= target.queue_count
                or header.sys_flag & OTHER_SYS_FLAGS
                or header.reconsume_times
                or request.flag & OTHER_FLAGS
                or not 0 < frame_end - header_end <= body_bytes_max
                or not is_plain(text, waits_to_answer)
            ):
                break
            queue_id = header.queue_id if header.queue_id >= 0 else self._choose_queue(target.write_queue_count)
            queue = target.queues.get(queue_id)
            key, text_end = split_unique_key(text)
            unique_key = key.encode()
            if queue is None or not (unique_key.isalnum() or self._is_odd_key_plain(unique_key, text, request)):
                break
            if quota is not None and not quota.take_send(
                header.topic, header.producer_group, born_host, frame_end - header_end, user
            ):
                break
            if target is not run_target:
                run_target = target
                result.end_run(target)
            put = self._take_batch if header.batch else self._take_send
            if not put(result, request, text, text_end, unique_key, target, queue_id, queue, header_end, frame_end):
                if quota is not None:
                    quota.return_send(header.topic, header.producer_group, born_host, frame_end - header_end, user)
                break
            position = frame_end
        return position

    def _judge(
        self,
        result: FeedResult,
        decode: Decode,
        data: bytes,
        header_start: int,
        header_end: int,
        frame_end: int,
        born_host: bytes,
    ) -> tuple[SendRequest | None, str] | None:
        """Decode a send and let access control decide: the send and its user, or no send if it was refused; None if it
        is for ordinary code."""
        guard = self._guard
        assert guard is not None
        head, body = data[header_start:header_end], data[header_end:frame_end]
        if born_host in guard.suspects and self._refuse(result, head, body, born_host, None, None):
            return None, ""
        request: SendRequest | None
        try:
            request = decode(head)
        except msgspec.DecodeError:
            request = None
        verdict = None if request is None else guard.judge_send(request, body, born_host)
        if isinstance(verdict, str):
            return request, verdict
        return (None, "") if self._refuse(result, head, body, born_host, request, verdict) else None

    def _refuse(
        self,
        result: FeedResult,
        header: bytes,
        body: bytes,
        born_host: bytes,
        request: SendRequest | None,
        refusal: SendRefusal | None,
    ) -> bool:
        """Answer a send that is not allowed; False if that is for ordinary code."""
        assert self._guard is not None
        is_json = header[:1] == JSON_START
        if request is not None and refusal is not None:
            opaque, flag = request.opaque, request.flag
        else:
            refused = self._guard.refuse_unsigned(header, body, born_host, is_json=is_json)
            if refused is None:
                return False
            refusal, opaque, flag = refused.refusal, refused.opaque, refused.flag
        if flag & OTHER_FLAGS:
            return False
        answer = b"" if flag & FLAG_ONEWAY else refusal.answer(opaque, is_binary=not is_json)
        result.refused.append(RefusedSend(len(result.answers), refusal, answer))
        return True

    def _is_odd_key_plain(self, unique_key: bytes, text: str, request: SendRequest) -> bool:
        """Whether a key that is not made of letters and digits alone, or none, is nothing for ordinary code."""
        if not unique_key:
            # A batch is answered without one. A message gets one behind its properties, whose text ordinary code
            # writes anew then: take those alone that stay as they are.
            if request.ext_fields.batch:
                return UNIQUE_KEY_MARK not in text
            return encode_text(decode_properties(text)) == (text if text[-1:] in ("", VALUE_END) else text + VALUE_END)
        # In a JSON answer these need no escape.
        key = unique_key.decode()
        return key.isascii() and key.isprintable() and '"' not in key and "\\" not in key

    def _commit(self, result: FeedResult) -> None:
        """Write the log; when it refuses, nothing was taken."""
        if not result.queues:
            return
        try:
            self._log.append(b"".join(result.parts))
        except MQError as error:
            logger.warning("sends refused messages=%d error=%s", len(result.queues), error)
            self._take_back(result.queues)
            result.consumed = 0
            result.append_end = result.append_start
            result.replies.clear()
            result.refused.clear()
            result.queues.clear()
            result.answers = [None] * len(result.answers)
            return
        assert self._log.append_offset == result.append_end
        result.end_run(None)
        for target, count, bytes_ in result.puts:
            meter = target.meter
            if meter is None:
                meter = target.meter = self._put_meter(target.topic)
            meter.add(count, bytes_)
        self._on_stored(len(result.queues), result.append_end - result.append_start)

    def _take_back(self, queues: list[ConsumeQueue]) -> None:
        """Put the queues back to where they were before the log refused their messages."""
        for queue in reversed(queues):
            queue.next_offset -= 1
            del queue.tail[-UNIT.size :]
            if not queue.tail:
                self._dirty.discard(queue)

    def _take_send(
        self,
        result: FeedResult,
        request: SendRequest,
        text: str,
        text_end: str,
        unique_key: bytes,
        target: SendTarget,
        queue_id: int,
        queue: ConsumeQueue,
        body_start: int,
        body_end: int,
    ) -> bool:
        """One message; False leaves it, and everything, as it was."""
        header = request.ext_fields
        sent = (text if not text or text[-1] == VALUE_END else text + VALUE_END).encode()
        properties_bytes = len(sent) + len(self._suffix)
        if not unique_key:
            properties_bytes += len(UNIQUE_KEY_MARK) + self._unique_ids.id_bytes + len(VALUE_END)
        record_bytes = target.record_bytes + body_end - body_start + properties_bytes
        physical_offset = result.append_end
        append_offset = physical_offset + record_bytes
        if append_offset > result.limit or properties_bytes > PROPERTIES_BYTES_MAX:
            return False
        if unique_key:
            properties = sent + self._suffix
        else:
            unique_key = self._unique_ids.next().encode()
            properties = b"%b%b%b%b%b" % (
                sent,
                UNIQUE_KEY_MARK.encode(),
                unique_key,
                VALUE_END.encode(),
                self._suffix,
            )
        assert len(properties) == properties_bytes
        body = result.data[body_start:body_end]
        queue_offset = queue.next_offset
        result.parts += (
            pack_record_head(
                record_bytes,
                MAGIC_V1,
                crc32(body) & CHECKSUM_MASK,
                queue_id,
                header.flag,
                queue_offset,
                physical_offset,
                header.sys_flag,
                header.born_timestamp,
                result.fields,
                body_end - body_start,
            ),
            body,
            target.topic_field,
            properties_bytes.to_bytes(PROPERTIES_SIZE_BYTES, "big"),
            properties,
        )
        if not queue.tail:
            self._mark_dirty(queue)
        queue.next_offset = queue_offset + 1
        tags_code = self._remembered_tags_code(text_end)
        if tags_code is None:
            tags_code = self._tags_codes.find(text, text_end)
        queue.tail += pack_unit(physical_offset, record_bytes, tags_code)
        result.queues.append(queue)
        result.append_end = append_offset
        if not request.flag & FLAG_ONEWAY:
            values = physical_offset, queue_id, queue_offset, unique_key, request.opaque
            if request.is_binary:
                result.replies.append(self._replies.binary_single(*values))
            else:
                reply = self._json_reply % values
                result.replies.append(pack_frame_head(len(reply) + LENGTH_BYTES, len(reply)) + reply)
        return True

    def _take_batch(
        self,
        result: FeedResult,
        request: SendRequest,
        _text: str,
        _text_end: str,
        unique_key: bytes,
        target: SendTarget,
        queue_id: int,
        queue: ConsumeQueue,
        body_start: int,
        body_end: int,
    ) -> bool:
        """The messages of one batch, all or none; False leaves everything as it was."""
        header = request.ext_fields
        first_offset = queue.next_offset
        records = make_records(
            result.data,
            body_start,
            body_end,
            BatchPlace(
                queue_id=queue_id,
                queue_offset=first_offset,
                physical_offset=result.append_end,
                sys_flag=header.sys_flag,
                born_timestamp_ms=header.born_timestamp,
                chunk_fields=result.fields,
                topic_field=target.topic_field,
                record_bytes=target.record_bytes,
            ),
        )
        if records is None or records.append_end > result.limit:
            return False
        count = len(records.physical_offsets)
        result.parts += records.parts
        result.queues += [queue] * count
        result.append_end = records.append_end
        if not queue.tail:
            self._mark_dirty(queue)
        queue.next_offset = first_offset + count
        queue.tail += records.units
        if not request.flag & FLAG_ONEWAY:
            result.replies.append(
                self._replies.batch(
                    records.physical_offsets,
                    queue_id,
                    first_offset,
                    unique_key,
                    request.opaque,
                    request.is_binary,
                )
            )
        return True
