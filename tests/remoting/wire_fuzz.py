"""Hostile bytes for whatever speaks remoting, from a seed; and a driver that throws them at a live address.

    cases = FuzzCases(seed=7)
    report = await throw(address, cases, count=100_000, probe=probe)
    assert not report.violations, report

A case holds the bytes that one peer sends, and the outcomes allowed:
    CLOSE    the length word or the header cannot be: the peer must close, or answer, and must not wait for more
    ANSWER   whole frames with a readable header: an answer, a close or (long polling) nothing; the peer keeps running
    WAIT     the start of a frame: nothing can be expected, the sender goes away

Names in it start with `fuzz_`, so honest topics and groups on the same broker stay out of it; `EXCLUDED_CODES` are
those that would do harm without naming anything.
"""

from __future__ import annotations

import asyncio
import enum
import random
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from thermocline.remoting import headers
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.frames import FRAME_BYTES_MAX
from thermocline.remoting.header_codec import Header
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import is_unix_address, parse_address

EXCLUDED_CODES = frozenset(
    {
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.SET_COMMITLOG_READ_MODE,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
    }
)

FIELD_NAMES = sorted(
    {
        field.encode_name
        for header_type in (getattr(headers, name) for name in headers.__all__)
        if isinstance(header_type, type) and issubclass(header_type, Header)
        for field in msgspec.structs.fields(header_type)
    }
)
"""Every field that some header has."""

_BODIES_JSON = (
    b'{"clientID":"fuzz_client","consumerDataSet":[{"groupName":"fuzz_g","subscriptionDataSet":[{"topic":"fuzz_t"}]}],'
    b'"producerDataSet":[{"groupName":"fuzz_p"}]}',
    b'{"consumerGroup":"fuzz_g","clientId":"fuzz_client","mqSet":[{"topic":"fuzz_t","brokerName":"b","queueId":0}]}',
    b'{"groupName":"fuzz_g","retryQueueNums":1}',
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"fuzz_t"}:7}}',
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1},"topicConfigTable":{}}}',
    b'{"a":{"$ref":"$.b"},"b":[{"$ref":"$.a"}]}',
    b'{0:"x",1:{2:[',
    b"[" * 5_000,
    b'{"x":' * 2_000,
    b'{"topicList":null}',
    b"null",
    b"key=value\nbroken line\n",
    zlib.compress(b"\x00" * 100_000),
    zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"),
)

_TEXTS = (
    "",
    "0",
    "-1",
    "1",
    "4",
    "2147483647",
    "2147483648",
    "-9223372036854775808",
    "99999999999999999999",
    "1e999",
    "0x10",
    "NaN",
    "true",
    "TRUE",
    "false",
    "null",
    " ",
    "fuzz_topic",
    "fuzz_group",
    "%RETRY%fuzz_group",
    "fuzz\x00\x01\x02",
    "../fuzz_x",
    "fuzz/../../fuzz_y",
    "/fuzz",
    "fuzz_grün_红",
    "fuzz_" + "x" * 300,
    "*",
    "a || b",
    "||",
    "127.0.0.1:10911",
    "UNIQ_KEY\x01fuzz\x02DELAY\x0199\x02",
    "TRAN_MSG\x01true\x02",
    "KEYS\x01k\x02TIMER_DELAY_MS\x011\x02",
)


class Outcome(enum.Enum):
    """What may come of a case."""

    CLOSE = "close"
    ANSWER = "answer"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzCase:
    """What one peer sends."""

    index: int
    kind: str
    data: bytes
    outcome: Outcome


class FuzzCases:
    """An endless row of cases; the same for the same seed."""

    def __init__(self, *, seed: int, excluded_codes: frozenset[int] = EXCLUDED_CODES) -> None:
        self._random = random.Random(seed)
        self._codes = [int(code) for code in RequestCode if code not in excluded_codes]
        self._excluded_codes = excluded_codes
        self._makers: list[tuple[str, Callable[[], tuple[bytes, Outcome]]]] = [
            ("noise", self._noise),
            ("framed noise", self._framed_noise),
            ("over-long", self._over_long),
            ("truncated", self._truncated),
            ("header word", self._header_word),
            ("mutated", self._mutated),
            ("broken header", self._broken_header),
            ("hostile fields", self._hostile_fields),
            ("hostile fields", self._hostile_fields),
            ("hostile body", self._hostile_body),
            ("unasked response", self._unasked_response),
            ("many at once", self._many),
        ]

    def generate(self, count: int) -> Iterator[FuzzCase]:
        """Yield the next `count` cases."""
        for index in range(count):
            kind, make = self._random.choice(self._makers)
            data, outcome = make()
            yield FuzzCase(index=index, kind=kind, data=data, outcome=outcome)

    # -- parts -----------------------------------------------------------------------------------------------------

    def valid_command(self) -> RemotingCommand:
        """A command with a readable header; its fields and body are anything."""
        rng = self._random
        code = rng.choice(self._codes) if rng.random() < 0.9 else rng.choice((-1, 7, 999, 32767))
        fields = {rng.choice(FIELD_NAMES): rng.choice(_TEXTS) for _ in range(rng.randrange(12))}
        for name in ("topic", "consumerGroup", "group", "groupName", "b", "a", "brokerName", "namespace"):
            if rng.random() < 0.5:
                fields[name] = "fuzz_" + rng.choice(("topic", "group", "x"))
        for name in ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "e", "f", "offset", "timestamp", "maxNum"):
            if rng.random() < 0.5:
                fields[name] = rng.choice(("0", "1", "-1", "32", "7"))
        fields["suspendTimeoutMillis"] = "1"
        return RemotingCommand(
            code=code,
            opaque=rng.randrange(2**31),
            flag=rng.choice((0, 0, 0, 2)),
            language=rng.choice(list(LanguageCode)),
            version=rng.choice((0, 37, 401, 479, 513, 32767)),
            remark=rng.choice((None, None, "fuzz")),
            ext_fields=fields or None,
            body=self._body() if rng.random() < 0.4 else b"",
            serialize_type=rng.choice((SerializeType.JSON, SerializeType.ROCKETMQ)),
        )

    def _bytes(self, size_max: int) -> bytes:
        return self._random.randbytes(self._random.randrange(size_max + 1))

    def _body(self) -> bytes:
        rng = self._random
        choice = rng.randrange(4)
        if choice == 0:
            return self._bytes(200)
        if choice == 1:
            batch = encode_batch([BatchMessage(self._bytes(20), b"TAGS\x01a\x02"), BatchMessage(b"x")])
            return self._mutate(batch) if rng.random() < 0.7 else batch
        body = rng.choice(_BODIES_JSON)
        return self._mutate(body) if choice == 2 else body

    def _mutate(self, data: bytes) -> bytes:
        """A few bits, bytes or stretches of `data` changed."""
        rng = self._random
        mutated = bytearray(data or b"\x00")
        for _ in range(rng.randrange(1, 5)):
            position = rng.randrange(len(mutated)) if mutated else 0
            action = rng.randrange(5)
            if action == 0 and mutated:
                mutated[position] ^= 1 << rng.randrange(8)
            elif action == 1 and mutated:
                mutated[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x7D))
            elif action == 2:
                mutated[position:position] = self._bytes(8)
            elif action == 3:
                del mutated[position : position + rng.randrange(1, 9)]
            elif len(mutated) >= 4:
                position = rng.randrange(len(mutated) - 3)
                word = rng.choice((0, 1, -1, 2**31 - 1, -(2**31), len(mutated)))
                struct.pack_into(">i", mutated, position, word)
        return bytes(mutated)

    @staticmethod
    def _frame(content: bytes) -> bytes:
        return struct.pack(">i", len(content)) + content

    def _safe(self, frame: bytes) -> bool:
        """Whether a mutation has not turned a frame into one of the excluded requests."""
        return not any(str(int(code)).encode() in frame[:120] for code in self._excluded_codes)

    # -- kinds -----------------------------------------------------------------------------------------------------

    def _noise(self) -> tuple[bytes, Outcome]:
        return self._bytes(400), Outcome.WAIT

    def _framed_noise(self) -> tuple[bytes, Outcome]:
        content = self._bytes(300)
        return self._frame(content), Outcome.CLOSE if len(content) < 4 else Outcome.WAIT

    def _over_long(self) -> tuple[bytes, Outcome]:
        rng = self._random
        size = rng.choice((FRAME_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31), rng.randrange(FRAME_BYTES_MAX + 1, 2**31)))
        return struct.pack(">i", size) + self._bytes(64), Outcome.CLOSE

    def _truncated(self) -> tuple[bytes, Outcome]:
        frame = self.valid_command().encode()
        return frame[: self._random.randrange(len(frame))], Outcome.WAIT

    def _header_word(self) -> tuple[bytes, Outcome]:
        rng = self._random
        content = bytearray(self.valid_command().encode()[4:])
        if rng.random() < 0.5:
            content[0] = rng.randrange(2, 256)  # no such serialisation
        else:
            content[1:4] = (len(content) + rng.randrange(1, 1000)).to_bytes(3, "big")  # a header beyond its frame
        return self._frame(bytes(content)), Outcome.CLOSE

    def _mutated(self) -> tuple[bytes, Outcome]:
        while True:
            content = self._mutate(self.valid_command().encode()[4:])
            if self._safe(content):
                return self._frame(content), Outcome.WAIT

    def _broken_header(self) -> tuple[bytes, Outcome]:
        rng = self._random
        if rng.random() < 0.5:
            header = rng.choice(
                (b"", b"{", b"[]", b'"x"', b'{"code":"x"}', b"{]", b"\xff\xfe", b'{"code":10,"extFields":7}')
            )
            word = len(header)
        else:
            header = rng.choice((b"", b"\x00" * 16, b"\x00" * 17 + b"\x7f\xff\xff\xff", b"\xff" * 40))
            word = SerializeType.ROCKETMQ << 24 | len(header)
        return self._frame(struct.pack(">I", word) + header + self._bytes(30)), Outcome.CLOSE

    def _hostile_fields(self) -> tuple[bytes, Outcome]:
        command = self.valid_command()
        return command.encode(), Outcome.WAIT if command.is_oneway else Outcome.ANSWER

    def _hostile_body(self) -> tuple[bytes, Outcome]:
        command = self.valid_command()
        command.body = self._body()
        return command.encode(), Outcome.WAIT if command.is_oneway else Outcome.ANSWER

    def _unasked_response(self) -> tuple[bytes, Outcome]:
        command = self.valid_command()
        command.flag = 1
        return command.encode(), Outcome.WAIT

    def _many(self) -> tuple[bytes, Outcome]:
        commands = [self.valid_command() for _ in range(self._random.randrange(2, 20))]
        silent = all(command.is_oneway for command in commands)
        return b"".join(command.encode() for command in commands), Outcome.WAIT if silent else Outcome.ANSWER


@dataclass(slots=True)
class FuzzReport:
    """What came of the cases."""

    thrown: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    closed: int = 0
    probes: int = 0
    violations: list[str] = field(default_factory=list)


Probe = Callable[[], Awaitable[None]]


async def throw(
    address: str,
    cases: FuzzCases,
    *,
    count: int,
    probe: Probe,
    probe_every: int = 500,
    concurrency: int = 16,
    timeout_ms: int = 10_000,
    answer_wait_ms: int = 50,
) -> FuzzReport:
    """Send every case on a connection of its own; `probe` is an honest client's exchange, which raises when it fails.

    A whole frame may well stay without answer (long polling); after `answer_wait_ms` the sender leaves.

    Never raises for what the peer does: that is in the report's `violations`, with the case's index and bytes.
    """
    report = FuzzReport()
    rows = cases.generate(count)

    async def worker() -> None:
        for case in rows:
            report.thrown[case.kind] += 1
            await _throw_one(address, case, report, timeout_ms / 1000, answer_wait_ms / 1000)
            if case.index % probe_every == probe_every - 1:
                await _run_probe(probe, case, report)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    await _run_probe(probe, None, report)
    return report


async def _run_probe(probe: Probe, case: FuzzCase | None, report: FuzzReport) -> None:
    report.probes += 1
    try:
        await probe()
    except Exception as error:  # noqa: BLE001 - whatever an honest client suffers is what we are after
        report.violations.append(f"probe failed after case {case.index if case else 'last'}: {error!r}")


async def _throw_one(address: str, case: FuzzCase, report: FuzzReport, timeout_s: float, answer_wait_s: float) -> None:
    try:
        if is_unix_address(address):
            reader, writer = await asyncio.open_unix_connection(address)
        else:
            reader, writer = await asyncio.open_connection(*parse_address(address))
    except OSError as error:
        report.violations.append(f"case {case.index}: no connection: {error}")
        return
    try:
        writer.write(case.data)
        if case.outcome is Outcome.CLOSE:
            try:
                async with asyncio.timeout(timeout_s):
                    received = await reader.read(4096)
            except TimeoutError:
                report.violations.append(
                    f"case {case.index} ({case.kind}): neither answer nor close: {case.data[:200].hex()}"
                )
                return
            if received:
                report.answered += 1
            else:
                report.closed += 1
        elif case.outcome is Outcome.ANSWER:
            try:
                async with asyncio.timeout(answer_wait_s):
                    received = await reader.read(65536)
                report.answered += bool(received)
                report.closed += not received
            except TimeoutError:
                pass
    except ConnectionError:
        report.closed += 1
    finally:
        sock = writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            # A reset instead of a goodbye: a hundred thousand of these would use up the ports otherwise.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
