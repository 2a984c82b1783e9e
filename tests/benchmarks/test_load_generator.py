"""The load generator sends and counts the configured number of messages; a small broker here fails on request."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from benchmarks.load_generator import LoadResult, LoadShape, run_load, topic_name
from tests.fixtures_tools import have
from tooling.system_packages import find_c_compiler

SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, PULL_MESSAGE = 310, 320, 11
PULL_NOT_FOUND = 19
PULL_QUEUE_END = 10_000


def frame(header: dict[str, object], body: bytes = b"") -> bytes:
    head = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body


class TinyBroker:
    """Answers sends with rising queue offsets and pulls with records; `distort` may change an answer's header."""

    def __init__(self, distort: Callable[[int, dict[str, object]], dict[str, object]]) -> None:
        self.distort = distort
        self.ends: Counter[int] = Counter()
        self.places: Counter[tuple[str, int]] = Counter()
        self.answered = 0
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, object]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._connections: list[socket.socket] = []
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        buffer = b""
        with connection:
            while True:
                try:
                    piece = connection.recv(1 << 20)
                except ConnectionResetError:
                    return
                if not piece:
                    return
                buffer += piece
                answers = []
                while len(buffer) >= 4 and len(buffer) >= 4 + struct.unpack_from(">i", buffer)[0]:
                    (size,) = struct.unpack_from(">i", buffer)
                    answers.append(self._answer(buffer[4 : 4 + size]))
                    buffer = buffer[4 + size :]
                try:
                    connection.sendall(b"".join(answers))
                except (ConnectionResetError, BrokenPipeError):
                    return

    def _answer(self, request: bytes) -> bytes:
        (head_size,) = struct.unpack_from(">i", request)
        header = json.loads(request[4 : 4 + head_size])
        fields, body = header["extFields"], b""
        with self._lock:
            if len(self.headers) < 5:
                self.headers.append(header)
                self.bodies.append(request[4 + head_size :])
            answer: dict[str, object] = {"code": 0, "flag": 1, "language": "JAVA", "opaque": header["opaque"]}
            if header["code"] == PULL_MESSAGE:
                first = int(fields["queueOffset"])
                if first >= PULL_QUEUE_END:
                    answer |= {"code": PULL_NOT_FOUND, "extFields": {"minOffset": "0"}}
                body = b"".join(
                    struct.pack(">iiiiiq", 100, 0, 0, int(fields["queueId"]), 0, offset).ljust(100, b".")
                    for offset in range(first, min(first + int(fields["maxMsgNums"]), PULL_QUEUE_END))
                )
            else:
                count = 32 if header["code"] == SEND_BATCH_MESSAGE else 1
                queue_id = int(fields["e"])
                place = fields["b"], queue_id
                answer["extFields"] = {"queueId": str(queue_id), "queueOffset": str(self.places[place])}
                self.places[place] += count
                self.ends[queue_id] += count
            self.answered += 1
            return frame(self.distort(self.answered, answer), body)


@pytest.fixture
def start_broker() -> Iterator[Callable[..., TinyBroker]]:
    have(find_c_compiler)
    brokers: list[TinyBroker] = []

    def start(distort: Callable[[int, dict[str, object]], dict[str, object]] = lambda _, answer: answer) -> TinyBroker:
        brokers.append(TinyBroker(distort))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


def load(broker: TinyBroker, shape: LoadShape, seconds: float = 0.3) -> LoadResult:
    return run_load(shape, address=broker.address, topic="Bench", seconds=seconds, warm_s=0.0)


def test_every_answered_send_is_counted(start_broker: Callable[..., TinyBroker]) -> None:
    broker = start_broker()
    result = load(broker, LoadShape(connections=3, window=8, body_bytes=100))
    assert result.is_clean
    assert result.offsets_gapless is True
    assert 0 < result.messages <= sum(broker.ends.values())
    assert set(broker.ends) == {0, 1, 2, 3}
    assert 0 < result.latency_us.p50 <= result.latency_us.p99 <= result.latency_us.max * 1.02
    header, body = broker.headers[0], broker.bodies[0]
    assert header["code"] == SEND_MESSAGE_V2
    assert isinstance(header["extFields"], dict)
    assert header["extFields"]["i"].split("\x02")[2] == "WAIT\x01true"
    assert len(body) == 100


def test_sends_to_many_topics_go_to_every_queue_of_each(start_broker: Callable[..., TinyBroker]) -> None:
    broker = start_broker()
    result = load(broker, LoadShape(connections=2, window=8, queues=2, topics=3))
    assert result.is_clean
    assert result.offsets_gapless is True
    assert set(broker.places) == {(topic_name("Bench", topic), queue) for topic in range(3) for queue in range(2)}


def test_a_batch_counts_all_its_messages(start_broker: Callable[..., TinyBroker]) -> None:
    broker = start_broker()
    result = load(broker, LoadShape(mode="batch", connections=1, window=4))
    assert result.is_clean
    assert result.messages == 32 * result.requests
    body, records = broker.bodies[0], 0
    while body:
        (size,) = struct.unpack_from(">i", body)
        assert struct.unpack_from(">i", body, 16) == (100,)
        body, records = body[size:], records + 1
    assert records == 32


def test_pulled_records_are_counted_and_the_end_is_not_an_error(start_broker: Callable[..., TinyBroker]) -> None:
    result = load(start_broker(), LoadShape(mode="pull", connections=4, window=1))
    assert result.is_clean
    assert result.offsets_gapless is None
    assert result.messages > 32


def test_error_codes_are_counted_and_named(start_broker: Callable[..., TinyBroker]) -> None:
    result = load(
        start_broker(lambda number, answer: {**answer, "code": 2} if number % 50 == 0 else answer),
        LoadShape(connections=2, window=4),
    )
    assert not result.is_clean
    assert result.codes == {"2": result.errors}


def offset_given_twice(number: int, answer: dict[str, object]) -> dict[str, object]:
    return {**answer, "extFields": {"queueId": "0", "queueOffset": "7"}} if number == 40 else answer


def answer_to_nothing(number: int, answer: dict[str, object]) -> dict[str, object]:
    return {**answer, "opaque": 1_999_999_999} if number == 40 else answer


@pytest.mark.parametrize("distort", [offset_given_twice, answer_to_nothing])
def test_wrong_answers_are_noticed(
    distort: Callable[[int, dict[str, object]], dict[str, object]], start_broker: Callable[..., TinyBroker]
) -> None:
    assert not load(start_broker(distort), LoadShape(connections=1, window=4, queues=1)).is_clean


def test_an_open_loop_keeps_its_rate_and_charges_a_stall_to_all_it_delayed(
    start_broker: Callable[..., TinyBroker],
) -> None:
    stall_s, seconds, rate = 0.2, 1.0, 1_000
    wait = threading.Event()

    def stall_once(number: int, answer: dict[str, object]) -> dict[str, object]:
        if number == 300:
            wait.wait(stall_s)
        return answer

    result = load(start_broker(stall_once), LoadShape(connections=1, rate_per_s=rate), seconds=seconds)
    assert result.is_clean
    assert result.requests == pytest.approx(rate * seconds, rel=0.1)
    # 200 of 1000 requests fell due during the stall and waited half of it on average: one in ten waited half of it.
    assert result.latency_us.p90 >= stall_s / 4 * 1e6
    assert result.latency_us.max >= stall_s * 1e6
