"""Http2Connection: the serving side of one HTTP/2 connection.

    preface and SETTINGS -> per stream: HEADERS (CONTINUATION) -> DATA ... -> answer: HEADERS, DATA, HEADERS (trailers)

Frames are read in place; an answer is one write, and all answers of a round of the event loop are written together.
A window is widened when half of it is used up, so a client that sends steadily never waits.

An error of one stream resets it. What breaks the connection's common state (frame sizes, header compression, stream
ids, flow control) and floods (resets, changed windows, unsent answers) end the connection with GOAWAY.
Source: RFC 9113.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from thermocline.proxy.http2.frames import (
    FRAME_BYTES_DEFAULT,
    FRAME_HEAD,
    PREFACE,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
    FatalFrameError,
    Flag,
    FrameType,
    Setting,
    encode_frame,
    encode_go_away,
    encode_reset,
    encode_settings,
    encode_window_update,
    read_settings,
    without_padding,
)
from thermocline.proxy.http2.hpack import HeaderDecoder, HeadersTooLargeError
from thermocline.proxy.http2.limits import Http2Limits
from thermocline.proxy.http2.request_headers import headers_of
from thermocline.proxy.http2.stream import Stream
from thermocline.proxy.http2.unsent_bytes import NOTED_BYTES, UnsentBytes
from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.socket_address import format_address

__all__ = ["RECEIVE_BYTES", "RESETS_PERIOD_S", "Http2Connection"]

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024
CONNECTION_WINDOW_BYTES = 16 << 20
RESETS_PERIOD_S = 10.0
YOUNG_STREAM_S = 1.0
"""A stream that is cancelled later counts for no flood: a balancer cancels thousands at once when its clients go."""
_PING_BYTES = 8
_SIGN = bytes(_PING_BYTES)
_SETTINGS_ACK = encode_frame(FrameType.SETTINGS, Flag.ACK, 0)
_HEADERS, _DATA = int(FrameType.HEADERS), int(FrameType.DATA)
_SETTINGS, _CONTINUATION = int(FrameType.SETTINGS), int(FrameType.CONTINUATION)
_WHOLE = Flag.END_HEADERS | Flag.END_STREAM
_pack_head = FRAME_HEAD.pack
_unpack_head = FRAME_HEAD.unpack_from


class Http2Connection(asyncio.BufferedProtocol):
    """See the module. Belongs to the server's loop."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        limits: Http2Limits,
        unsent_of_all: UnsentBytes,
        receive_buffer: memoryview,
        too_large_block: bytes,
        on_request: Callable[[Stream], None],
        on_opened: Callable[[Http2Connection], bool],
        on_closed: Callable[[Http2Connection], None],
    ) -> None:
        """`on_request` gives the stream its owner or answers it; `on_opened` says whether the connection is served.

        `too_large_block`: the header block that answers a request whose fields are larger than the limit.
        """
        self.loop = loop
        self.limits = limits
        self.streams: dict[int, Stream] = {}
        self.remote_host: tuple[str, int] = ("", 0)
        self.local_host: tuple[str, int] = ("", 0)
        self.is_closed = False
        self.last_active = self.last_received = self._progressed = loop.time()
        self.abort_at: float | None = None
        """When it is aborted: a sign of life was requested, or it is closed with something unsent."""
        self.has_settings = False
        self._unsent_of_all = unsent_of_all
        self._pending_bytes = 0
        """What the pending pieces of all streams hold; a piece of which a part is sent holds all of it."""
        self._receive_buffer = receive_buffer
        self._too_large_block = too_large_block
        self._on_request, self._on_opened, self._on_closed = on_request, on_opened, on_closed
        self._transport: asyncio.Transport | None = None
        self._decoder = HeaderDecoder(list_bytes_max=limits.header_list_bytes_max)
        self._rest = b""
        self._has_preface = False
        self._block: tuple[int, int, list[bytes], int] | None = None
        """Of a request whose header block is not complete: stream id, flags, pieces, their size."""
        self._last_stream_id = 0
        self._is_going_away = False
        self._peer_window = WINDOW_DEFAULT
        self._peer_frame_bytes = FRAME_BYTES_DEFAULT
        self._send_window = WINDOW_DEFAULT
        self._receive_window = CONNECTION_WINDOW_BYTES
        self._waiting: dict[Stream, None] = {}
        """Streams with something pending whose own window is open, in the order in which they began to wait."""
        self._blocked: dict[Stream, None] = {}
        """Streams with something pending that wait for their own window."""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._resets = 0
        self._resets_since = self.last_active

    # -- the transport's calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open. Nothing is sent before the client's first bytes: they may be TLS."""
        self._transport = cast(asyncio.Transport, transport)
        self.remote_host = _host_of(transport.get_extra_info("peername"))
        self.local_host = _host_of(transport.get_extra_info("sockname"))
        self._transport.set_write_buffer_limits(high=self.limits.unsent_bytes_max // 4)
        if not self._on_opened(self):
            self.abort()
            return

    def secure(self, transport: asyncio.Transport, *, certificate_subject: str) -> None:
        """Go on over a transport that encrypts."""
        assert not self._has_preface
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self.is_closed:
            return
        self.last_received, self.abort_at = self.loop.time(), None
        data = bytes(self._receive_buffer[:nbytes])
        try:
            self._feed(self._rest + data if self._rest else data)
        except FatalFrameError as error:
            self._fail(error.code, str(error))
        except ProtocolError as error:
            self._fail(ErrorCode.COMPRESSION_ERROR, str(error))

    def eof_received(self) -> bool:
        """The client sends no more: the connection ends."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Every stream is lost."""
        self.is_closed = True
        streams, self.streams = list(self.streams.values()), {}
        self._waiting.clear()
        self._blocked.clear()
        self._out.clear()
        for stream in streams:
            self._lose(stream)
        self._unsent_of_all.end(self)
        self._on_closed(self)

    def pause_writing(self) -> None:
        """The client reads slower than answers come: data waits in the streams."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_write_paused = False
        self._pump()

    _is_write_paused = False

    # -- ending ------------------------------------------------------------------------------------------------------

    @property
    def remote_address(self) -> str:
        """The client's `host:port`."""
        return format_address(*self.remote_host)

    @property
    def unsent_bytes(self) -> int:
        """Answers that the client has not taken, in memory: behind its windows, and before them."""
        return self._pending_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def go_away(self) -> None:
        """Tell the client to open no more streams here; those that are open go on."""
        if not self._is_going_away and not self.is_closed:
            self._is_going_away = True
            if self._has_preface:
                self._send(encode_go_away(self._last_stream_id, ErrorCode.NO_ERROR))

    def close(self) -> None:
        """Send what is unsent, and close. Idempotent."""
        if not self.is_closed and self._transport is not None:
            self.go_away()
            self._flush()
            self._close_transport()

    def ask_for_sign(self) -> None:
        """Have the client show that it is there: it is aborted unless it sends something in time."""
        self.abort_at = self.loop.time() + self.limits.sign_timeout_ms / 1000
        self._send(encode_frame(FrameType.PING, 0, 0, _SIGN))

    def _close_transport(self) -> None:
        """Close behind what is unsent; a client that does not take it is aborted later."""
        self.is_closed = True
        self.abort_at = self.loop.time() + self.limits.sign_timeout_ms / 1000
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, code: ErrorCode, reason: str) -> None:
        logger.info("connection closed, error=%s reason=%s remote=%s", code.name, reason, self.remote_address)
        self._send(encode_go_away(self._last_stream_id, code))
        self._flush()
        self._close_transport()
        streams, self.streams = list(self.streams.values()), {}
        for stream in streams:
            self._lose(stream)

    def _lose(self, stream: Stream) -> None:
        stream.is_closed = True
        self._pending_bytes -= sum(map(_held_bytes, stream.pending))
        stream.pending.clear()
        stream.wake()
        if stream.owner is not None:
            stream.owner.stream_lost()

    # -- sending -----------------------------------------------------------------------------------------------------

    def respond(self, stream: Stream, head_block: bytes, data: bytes, trailers_block: bytes) -> None:
        """See `Stream.respond`."""
        size = len(data)
        if (
            size > self._send_window
            or size > stream.send_window
            or size > self._peer_frame_bytes
            or self._waiting
            or self._is_write_paused
        ):
            stream.send_headers(head_block)
            self.send_data(stream, data)
            self.end_stream(stream, trailers_block)
            return
        stream.is_headed = True
        self._send_window -= size
        stream_id = stream.stream_id
        self._send(
            b"".join(
                (
                    _pack_head(len(head_block) >> 8, len(head_block) & 0xFF, _HEADERS, Flag.END_HEADERS, stream_id),
                    head_block,
                    _pack_head(size >> 8, size & 0xFF, _DATA, 0, stream_id),
                    data,
                    _pack_head(
                        len(trailers_block) >> 8,
                        len(trailers_block) & 0xFF,
                        _HEADERS,
                        Flag.END_HEADERS | Flag.END_STREAM,
                        stream_id,
                    ),
                    trailers_block,
                )
            )
        )
        self._forget(stream)

    def send_headers(self, stream: Stream, block: bytes) -> None:
        """See `Stream.send_headers`."""
        self._send(encode_frame(FrameType.HEADERS, Flag.END_HEADERS, stream.stream_id, block))

    def send_data(self, stream: Stream, data: bytes) -> None:
        """See `Stream.send_data`."""
        if not stream.pending:
            stream.progressed = self.loop.time()
        stream.pending.append(data)
        stream.pending_bytes += len(data)
        self._pending_bytes += len(data)
        if stream not in self._blocked:
            self._waiting[stream] = None
            self._pump()
        if stream.pending:
            self._unsent_of_all.note(self, self.unsent_bytes)

    def end_stream(self, stream: Stream, trailers_block: bytes) -> None:
        """See `Stream.end`."""
        if stream.pending_bytes:
            stream.pending_end = trailers_block
        else:
            self._end_now(stream, trailers_block)

    def _end_now(self, stream: Stream, trailers_block: bytes) -> None:
        flags = Flag.END_HEADERS | Flag.END_STREAM
        self._send(encode_frame(FrameType.HEADERS, flags, stream.stream_id, trailers_block))
        self._forget(stream)

    def reset_stream(self, stream: Stream, code: int) -> None:
        """See `Stream.reset`; its owner loses it."""
        self._send(encode_reset(stream.stream_id, code))
        self._stop_waiting(stream)
        self.streams.pop(stream.stream_id, None)
        self._lose(stream)
        if not self.streams:
            self.last_active = self.loop.time()

    def _forget(self, stream: Stream) -> None:
        """The answer is sent. A client that still sends its request gets a reset without error."""
        stream.is_closed = True
        if self.streams.pop(stream.stream_id, None) is not None and not stream.is_request_ended:
            self._send(encode_reset(stream.stream_id, ErrorCode.NO_ERROR))
        if not self.streams:
            self.last_active = self.loop.time()

    def _stop_waiting(self, stream: Stream) -> None:
        self._waiting.pop(stream, None)
        self._blocked.pop(stream, None)

    def _unblock(self, stream: Stream) -> None:
        """Let a stream send on, if its window has been widened."""
        if stream in self._blocked and stream.send_window > 0:
            del self._blocked[stream]
            self._waiting[stream] = None

    def _pump(self) -> None:
        """Send what is pending as far as the windows and the client's reading allow, streams in turn.

        Each stream that is looked at sends something or waits for its own window from then on: a client that widens the
        connection's window a byte at a time costs no look at all streams for each.
        """
        while self._waiting and not self._is_write_paused and self._send_window > 0:
            self._pump_stream(next(iter(self._waiting)))

    def _pump_stream(self, stream: Stream) -> None:
        pending = stream.pending
        while pending:
            if stream.send_window <= 0:
                del self._waiting[stream]
                self._blocked[stream] = None
                return
            if self._send_window <= 0 or self._is_write_paused:
                return
            room = min(self._send_window, stream.send_window, self._peer_frame_bytes)
            piece = pending[0]
            if len(piece) <= room:
                self._pending_bytes -= _held_bytes(pending.pop(0))
            else:
                view = memoryview(piece)  # what remains is not copied for each frame
                pending[0], piece = view[room:], view[:room]
            size = len(piece)
            stream.pending_bytes -= size
            stream.send_window -= size
            self._send_window -= size
            stream.progressed = self._progressed = self.loop.time()
            self._send(encode_frame(FrameType.DATA, 0, stream.stream_id, piece))
        del self._waiting[stream]
        if stream.pending_end is not None:
            self._end_now(stream, stream.pending_end)
        stream.wake()

    def stalled_streams(self) -> list[Stream]:
        """The streams of whose answers the client has taken nothing for too long; not those that wait for others."""
        before = self.loop.time() - self.limits.answer_timeout_ms / 1000
        is_stalled = self._progressed <= before
        stalled = [each for each in self._blocked if each.progressed <= before]
        return stalled + [each for each in self._waiting if is_stalled and each.progressed <= before]

    def _send(self, data: bytes) -> None:
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
            if self._transport.get_write_buffer_size() > self.limits.unsent_bytes_max:
                logger.warning("connection closed, its client does not read answers remote=%s", self.remote_address)
                self.abort()
            elif self._transport.get_write_buffer_size() >= NOTED_BYTES:
                self._unsent_of_all.note(self, self.unsent_bytes)
        self._out.clear()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        position, end = 0, len(data)
        if not self._has_preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                logger.info("connection closed, it is not HTTP/2 remote=%s", self.remote_address)
                self.abort()
                return
            if end < len(PREFACE):
                self._rest = data
                return
            self._has_preface, position = True, len(PREFACE)
            self._send_settings()
            if self._is_going_away:
                self._send(encode_go_away(0, ErrorCode.NO_ERROR))
        while end - position >= 9:
            high, low, frame_type, flags, stream_id = _unpack_head(data, position)
            length = high << 8 | low
            if length > FRAME_BYTES_DEFAULT:
                raise FatalFrameError(ErrorCode.FRAME_SIZE_ERROR, "a frame is larger than allowed")
            frame_end = position + 9 + length
            if frame_end > end:
                break
            self._receive(frame_type, flags, stream_id & 0x7FFFFFFF, data[position + 9 : frame_end])
            if self.is_closed:
                return
            position = frame_end
        self._rest = data[position:] if position < end else b""

    def _send_settings(self) -> None:
        settings = encode_settings(
            {
                Setting.MAX_CONCURRENT_STREAMS: self.limits.streams_max,
                Setting.INITIAL_WINDOW_SIZE: self.limits.window_bytes,
                Setting.MAX_HEADER_LIST_SIZE: self.limits.header_list_bytes_max,
            }
        )
        self._send(settings + encode_window_update(0, CONNECTION_WINDOW_BYTES - WINDOW_DEFAULT))

    def _receive(self, frame_type: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self.has_settings and frame_type != _SETTINGS:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self._block is not None and frame_type != _CONTINUATION:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "a frame stands within a header block")
        if frame_type == _DATA:
            self._data(flags, stream_id, payload)
        elif frame_type == _HEADERS:
            self._headers(flags, stream_id, payload)
        else:
            receive = _RECEIVERS.get(frame_type)
            if receive is not None:  # unknown types are to be ignored
                receive(self, flags, stream_id, payload)

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        if not stream_id or stream_id > self._last_stream_id:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "DATA on a stream that was never opened")
        self._receive_window -= size
        if self._receive_window < 0:
            raise FatalFrameError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        if self._receive_window < CONNECTION_WINDOW_BYTES // 2:
            self._send(encode_window_update(0, CONNECTION_WINDOW_BYTES - self._receive_window))
            self._receive_window = CONNECTION_WINDOW_BYTES
        stream = self.streams.get(stream_id)
        if stream is None:
            return  # answered or reset meanwhile
        if stream.is_request_ended:
            stream.reset(ErrorCode.STREAM_CLOSED)
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise FatalFrameError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        owner = stream.owner
        assert owner is not None
        if flags & Flag.PADDED:
            payload = without_padding(payload)
        if payload:
            owner.data_received(payload)
        if flags & Flag.END_STREAM:
            stream.is_request_ended = True
            owner.request_ended()
        elif stream.receive_window < self.limits.window_bytes // 2 and not stream.is_closed:
            self._send(encode_window_update(stream_id, self.limits.window_bytes - stream.receive_window))
            stream.receive_window = self.limits.window_bytes

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & Flag.PADDED:
            payload = without_padding(payload)
        if flags & Flag.PRIORITY:
            if len(payload) < 5:
                raise FatalFrameError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without its priority")
            payload = payload[5:]
        if flags & Flag.END_HEADERS:
            self._request(flags, stream_id, payload)
        else:
            self._block = stream_id, flags, [payload], len(payload)

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream_id:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        _, first_flags, pieces, size = self._block
        size += len(payload)
        if size > self.limits.header_block_bytes_max or (not payload and not flags & Flag.END_HEADERS):
            raise FatalFrameError(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        pieces.append(payload)
        self._block = stream_id, first_flags, pieces, size
        if flags & Flag.END_HEADERS:
            self._block = None
            self._request(first_flags, stream_id, b"".join(pieces))

    def _request(self, flags: int, stream_id: int, block: bytes) -> None:
        try:
            fields = self._decoder.decode(block)
        except HeadersTooLargeError:
            fields = None
        stream = self.streams.get(stream_id)
        if stream is not None or stream_id <= self._last_stream_id:
            if stream is None:
                return  # trailers of a stream that was answered or reset meanwhile
            if stream.is_request_ended or not flags & Flag.END_STREAM:
                raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "two header blocks on one stream")
            stream.is_request_ended = True
            assert stream.owner is not None
            stream.owner.request_ended()
            return
        if not stream_id & 1:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "a client opens streams of odd ids")
        self._last_stream_id = stream_id
        if self._is_going_away or len(self.streams) >= self.limits.streams_max:
            self._send(encode_reset(stream_id, ErrorCode.REFUSED_STREAM))
            self._count_reset()
            return
        if fields is None:
            self._send(encode_frame(FrameType.HEADERS, _WHOLE, stream_id, self._too_large_block))
            if not flags & Flag.END_STREAM:
                self._send(encode_reset(stream_id, ErrorCode.NO_ERROR))
            self._count_reset()
            return
        headers = headers_of(fields)
        if headers is None:
            self._send(encode_reset(stream_id, ErrorCode.PROTOCOL_ERROR))
            self._count_reset()
            return
        stream = Stream(self, stream_id, headers, send_window=self._peer_window)
        self.streams[stream_id] = stream
        stream.is_request_ended = bool(flags & Flag.END_STREAM)
        self._on_request(stream)
        if stream.is_closed:
            return
        assert stream.owner is not None
        if stream.is_request_ended:
            stream.owner.request_ended()

    def _rst_stream(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4 or not stream_id or stream_id > self._last_stream_id:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM is malformed")
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self._stop_waiting(stream)
            self._lose(stream)
            now = self.loop.time()
            if not self.streams:
                self.last_active = now
            if now - stream.opened >= YOUNG_STREAM_S:
                return
        self._count_reset()

    def _count_reset(self) -> None:
        now = self.loop.time()
        if now - self._resets_since > RESETS_PERIOD_S:
            self._resets, self._resets_since = 0, now
        self._resets += 1
        if self._resets > self.limits.resets_max:
            raise FatalFrameError(ErrorCode.ENHANCE_YOUR_CALM, "too many streams were cancelled, or windows changed")

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "SETTINGS belong to the connection")
        if flags & Flag.ACK:
            if payload:
                raise FatalFrameError(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS holds settings")
            return
        settings = read_settings(payload)
        self.has_settings = True
        self._peer_frame_bytes = min(settings.get(Setting.MAX_FRAME_SIZE, self._peer_frame_bytes), 1 << 20)
        window = settings.get(Setting.INITIAL_WINDOW_SIZE, self._peer_window)
        if window != self._peer_window:
            self._change_windows(window)
        self._send(_SETTINGS_ACK)
        self._pump()

    def _change_windows(self, window: int) -> None:
        """Have the client's new initial window count for all open streams; done often, that is a flood."""
        change, self._peer_window = window - self._peer_window, window
        if self.streams:
            self._count_reset()
        for stream in self.streams.values():
            stream.send_window += change
            self._unblock(stream)

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) != _PING_BYTES:
            raise FatalFrameError(ErrorCode.FRAME_SIZE_ERROR, "PING is malformed")
        if not flags & Flag.ACK:
            self._send(encode_frame(FrameType.PING, Flag.ACK, 0, payload))

    def _window_updated(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise FatalFrameError(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is malformed")
        increment = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if stream_id:
            stream = self.streams.get(stream_id)
            if stream is not None:
                stream.send_window += increment
                if not increment or stream.send_window > WINDOW_MAX:
                    self._lose(stream)
                    self.streams.pop(stream_id, None)
                    self._stop_waiting(stream)
                    self._send(encode_reset(stream_id, ErrorCode.FLOW_CONTROL_ERROR))
                    return
                self._unblock(stream)
        else:
            self._send_window += increment
            if not increment or self._send_window > WINDOW_MAX:
                raise FatalFrameError(ErrorCode.FLOW_CONTROL_ERROR, "a window was widened by 0, or too much")
        self._pump()

    def _gone_away(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The client opens no more streams; it closes the connection when it is done."""

    def _push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "a client pushes nothing")


_RECEIVERS: dict[int, Callable[[Http2Connection, int, int, bytes], None]] = {
    FrameType.RST_STREAM: Http2Connection._rst_stream,
    FrameType.SETTINGS: Http2Connection._settings,
    FrameType.PUSH_PROMISE: Http2Connection._push_promise,
    FrameType.PING: Http2Connection._ping,
    FrameType.GOAWAY: Http2Connection._gone_away,
    FrameType.WINDOW_UPDATE: Http2Connection._window_updated,
    FrameType.CONTINUATION: Http2Connection._continuation,
}


def _host_of(name: object) -> tuple[str, int]:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else ("", 0)


def _held_bytes(piece: bytes | memoryview) -> int:
    return len(piece) if isinstance(piece, bytes) else memoryview(piece.obj).nbytes
