"""The fast path by itself: sends that it handles, sends that it leaves to the ordinary code, and a log that refuses.

Covers `store/sends/fast_batch.py`, `store/sends/send_header.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.send_frames import FRAME_HEAD, batch_frame, json_frame, send_frame, unique_key
from thermocline.remoting.command import RemotingCommand, SerializeType, decode_command
from thermocline.remoting.errors import DiskFullError
from thermocline.remoting.records.batch import BatchMessage
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.records.message_record import encode_host, iterate_records
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import UNIT
from thermocline.store.sends import fast_batch
from thermocline.store.sends.fast_path import FastPath, FastPathSettings, FeedResult, SendTarget

NOW_MS = 1_795_247_850_000
STORE_HOST = ("127.0.0.1", 10911)
BORN_HOST = ("10.7.0.1", 45_678)
BORN = encode_host(BORN_HOST)
SUFFIX = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


class TopicMeter:
    """Writes down what is put into a topic."""

    def __init__(self, topic: str, puts: list[tuple[str, int, int]]) -> None:
        self._topic = topic
        self._puts = puts

    def add(self, count: int, bytes_: int) -> None:
        self._puts.append((self._topic, count, bytes_))


class Bench:
    """A fast path over a real store."""

    def __init__(self, root: Path, *, waits_for_flush: bool = False) -> None:
        config = StoreConfig(root_path=str(root), log_file_bytes=64 * 1024, queue_file_bytes=20 * 100)
        self.store = MessageStore.open(config, disk=RealDisk(), clock=lambda: NOW_MS)
        self.store.store_host = STORE_HOST
        for queue_id in range(4):
            self.store.queues.find_or_create("TopicA", queue_id)
        self.targets = {
            "TopicA": SendTarget(
                "TopicA", queues=self.store.queues.of_topic("TopicA"), queue_count=6, write_queue_count=4
            )
        }
        self.puts: list[tuple[str, int, int]] = []
        self.stored: list[tuple[int, int]] = []
        self.path = FastPath(
            self.store,
            self.targets,
            settings=FastPathSettings(
                store_host=STORE_HOST,
                region_id="DefaultRegion",
                trace_on=True,
                cluster_name="DefaultCluster",
                body_bytes_max=4_000,
                waits_to_answer=waits_for_flush,
            ),
            choose_queue=lambda count: count - 1,
            put_meter=lambda topic: TopicMeter(topic, self.puts),
            on_stored=lambda count, bytes_: self.stored.append((count, bytes_)),
            unique_ids=UniqueIdGenerator(address=STORE_HOST[0], process_id=1, number=2, clock_ms=lambda: NOW_MS),
        )

    def feed(self, *frames: bytes) -> FeedResult:
        return self.path.feed(memoryview(b"".join(frames)), BORN)

    def state(self) -> tuple[object, ...]:
        """Everything that a frame which is left alone must not change."""
        queues = self.store.queues.of_topic("TopicA").values()
        return (
            self.store.commit_log.append_offset,
            [(queue.next_offset, bytes(queue.tail)) for queue in queues],
            len(self.store.queues.dirty),
            list(self.puts),
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def test_a_send_becomes_the_record_that_rocketmq_stores(bench: Bench) -> None:
    """Every field of record, unit and answer."""
    properties = {"KEYS": "k1 k2", "UNIQ_KEY": unique_key(1), "WAIT": "true", "TAGS": "TagA"}
    result = bench.feed(send_frame(queue_id=2, body=b"hello", properties=properties, opaque=77, f="257", h="9"))
    (record,) = iterate_records(bench.store.commit_log.record_view(0, result.append_end))
    assert record.topic == "TopicA"
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (2, 0, 0)
    assert (record.flag, record.sys_flag, record.reconsume_times) == (9, 257, 0)
    assert (record.born_timestamp_ms, record.born_host) == (1_795_247_847_083, BORN_HOST)
    assert (record.store_timestamp_ms, record.store_host) == (NOW_MS, STORE_HOST)
    assert record.body == b"hello"
    assert (
        record.properties_text
        == f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{unique_key(1)}\x02WAIT\x01true\x02TAGS\x01TagA\x02{SUFFIX}".encode()
    )
    queue = bench.store.queues.of_topic("TopicA")[2]
    assert UNIT.unpack(queue.tail) == (0, record.size_bytes, 2_598_919)
    answer = decode_command(b"".join(result.replies)[4:])
    assert (answer.code, answer.opaque, answer.is_response, answer.body) == (0, 77, True, b"")
    assert answer.ext_fields == {
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": unique_key(1),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert bench.puts == [("TopicA", 1, record.size_bytes)]


def test_equal_messages_of_a_batch_are_laid_out_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("laid out one by one")

    monkeypatch.setattr(fast_batch, "_one_by_one", fail)
    result = bench.feed(send_frame(), batch_frame([BatchMessage(b"body", b"k\x01v\x02TAGS\x01TagA\x02", 1)] * 4))
    records = iterate_records(bench.store.commit_log.record_view(0, result.append_end))
    assert [record.body for record in records][1:] == [b"body"] * 4


def test_a_batch_becomes_records_of_its_messages(bench: Bench) -> None:
    """Their properties stay as they are; the answer names every id and the first offset."""
    messages = [
        BatchMessage(b"one", b"TAGS\x01TagA\x02", 1),
        BatchMessage(b"", b"", 2),
        BatchMessage(b"three", b"x\x011\x02", 3),
    ]
    result = bench.feed(send_frame(queue_id=1), batch_frame(messages, opaque=5, queue_id=1))
    records = list(iterate_records(bench.store.commit_log.record_view(0, result.append_end)))[1:]
    assert [(record.body, record.properties_text, record.flag) for record in records] == [
        (b"one", b"TAGS\x01TagA\x02", 1),
        (b"", b"", 2),
        (b"three", b"x\x011\x02", 3),
    ]
    assert [record.queue_offset for record in records] == [1, 2, 3]
    answer = decode_command(result.replies[1][4:])
    assert answer.ext_fields is not None
    assert answer.ext_fields["msgId"] == ",".join(
        f"7F00000100002A9F{record.physical_offset:016X}" for record in records
    )
    assert answer.ext_fields["queueOffset"] == "1"
    assert bench.puts == [("TopicA", 4, result.append_end)]


def test_one_way_sends_are_stored_and_not_answered(bench: Bench) -> None:
    result = bench.feed(send_frame(flag=2), send_frame(flag=0, opaque=8))
    assert len(result.queues) == 2
    assert decode_command(b"".join(result.replies)[4:]).opaque == 8


def test_queue_minus_one_is_chosen(bench: Bench) -> None:
    result = bench.feed(send_frame(queue_id=-1))
    assert [queue.queue_id for queue in result.queues] == [3]


def frame_with_header(text: bytes, word: int | None = None, length: int | None = None) -> bytes:
    return FRAME_HEAD.pack(4 + len(text) if length is None else length, len(text) if word is None else word) + text


LEFT = {
    "another code": json_frame({"code": 34, "opaque": 1, "extFields": {}}),
    "letters under the code of long names": json_frame(
        {"code": 10, "opaque": 1, "extFields": {"a": "g", "b": "TopicA", "e": "0"}}
    ),
    "a code further back": frame_with_header(json.dumps({"opaque": 1, "code": 310}).encode()),
    "a binary header": frame_with_header(b'{"code":310,', word=1 << 24 | 12),
    "a binary header beyond its frame": frame_with_header(send_frame(binary=True)[8:60], word=1 << 24 | 4_000),
    "a serialisation that there is not": frame_with_header(send_frame(binary=True)[8:60], word=2 << 24 | 52),
    "a binary header with another code": RemotingCommand(
        code=34, opaque=1, serialize_type=SerializeType.ROCKETMQ, body=b"x" * 40
    ).encode(),
    "a binary header with a number that is none": send_frame(binary=True, e="two"),
    "a header beyond its frame": frame_with_header(b'{"code":310,"extFields":{}}', word=4_000),
    "a negative header length": frame_with_header(b'{"code":310,"extFields":{}}', word=-5),
    "no header fields": json_frame({"code": 310, "opaque": 1}),
    "a number that is none": send_frame(e="two"),
    "a number too large": send_frame(h="2147483648"),
    "an unknown topic": send_frame(topic="Other"),
    "a queue beyond the topic's": send_frame(queue_id=6),
    "a queue that is not there yet": send_frame(queue_id=5),
    "an empty body": send_frame(body=b""),
    "a body over the limit": send_frame(body=bytes(4_001)),
    "a record over the file's rest": send_frame(
        body=bytes(3_900), properties={"UNIQ_KEY": unique_key(1), "x": "y" * 30_000}
    )
    * 3,
    "properties over their limit": send_frame(properties={"UNIQ_KEY": unique_key(1), "x": "y" * 32_760}),
    "no unique key, and a text to be written anew": send_frame(properties="TAGS\x01TagA\x02TAGS\x01TagB\x02"),
    "an empty unique key": send_frame(properties="TAGS\x01TagA\x02UNIQ_KEY\x01\x02"),
    "a batch with an empty unique key": batch_frame([BatchMessage(b"x")], i="UNIQ_KEY\x01\x02"),
    "a unique key to be escaped": send_frame(properties={"UNIQ_KEY": 'a"b'}),
    "a unique key of other letters": send_frame(properties={"UNIQ_KEY": "Ä-1"}),
    "a zero byte": send_frame(properties={"UNIQ_KEY": unique_key(1), "x": "\0"}),
    "a batch with a zero byte": batch_frame([BatchMessage(b"x", b"KEYS\1\0")] * 5),
    "a response": send_frame(flag=1),
    "a delay level": send_frame(properties={"UNIQ_KEY": unique_key(1), "DELAY": "3"}),
    "a time of delivery": send_frame(properties={"UNIQ_KEY": unique_key(1), "TIMER_DELIVER_MS": "5"}),
    "a half message": send_frame(properties={"UNIQ_KEY": unique_key(1), "TRAN_MSG": "true"}),
    "a transaction's flag": send_frame(f="4"),
    "an IPv6 host's flag": send_frame(f="16"),
    "an inner batch": send_frame(f="128"),
    "another broker's properties": send_frame(properties={"UNIQ_KEY": unique_key(1), "CLUSTER": "c"}),
    "a retry": send_frame(j="1"),
    "a batch that is none": send_frame(m="true"),
    "a batch cut short": batch_frame([BatchMessage(b"x" * 30)])[:-1] + b"\x01",
    "a batch with a delayed message": batch_frame([BatchMessage(b"x"), BatchMessage(b"y", b"DELAY\x011\x02")]),
}


@pytest.mark.parametrize("frame", LEFT.values(), ids=LEFT.keys())
def test_uncommon_sends_are_left_to_the_ordinary_code(bench: Bench, frame: bytes) -> None:
    """The frame in front is taken, this one and those behind it are not, and nothing of it stays behind."""
    before = bench.feed(send_frame())
    common = send_frame(opaque=2)
    state = bench.state()
    result = bench.feed(frame, common)
    while result.consumed and result.consumed < len(frame):  # a chunk of several, the last of which does not fit
        frame = frame[result.consumed :]
        state = bench.state()
        result = bench.feed(frame, common)
    assert result.consumed == 0
    assert result.replies == []
    assert bench.state() == state
    assert before.consumed == len(send_frame())


def test_properties_that_only_look_special_are_taken(bench: Bench) -> None:
    """A user's value may hold any word."""
    properties = {"UNIQ_KEY": unique_key(1), "KEYS": "DELAY TIMER_x", "note": "TRAN_MSG MSG_REGION", "TAGS": "CLUSTER"}
    frame = send_frame(properties=properties)
    assert bench.feed(frame).consumed == len(frame)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("properties", ["", "TAGS\x01TagA", "TAGS\x01TagA\x02colour\x01red\x02"])
def test_a_message_without_a_unique_key_is_given_one(bench: Bench, properties: str, binary: bool) -> None:
    """The answer names it, too."""
    frame = send_frame(properties=properties, binary=binary)
    result = bench.feed(frame, send_frame(opaque=2), frame)
    first, second, third = iterate_records(bench.store.commit_log.record_view(0, result.append_end))
    assert first.unique_key
    text = properties if not properties or properties.endswith("\x02") else properties + "\x02"
    assert first.properties_text == f"{text}UNIQ_KEY\x01{first.unique_key}\x02{SUFFIX}".encode()
    assert len({record.unique_key for record in (first, second, third)}) == 3
    answers = [decode_command(reply[4:]).ext_fields or {} for reply in result.replies]
    assert [answer["transactionId"] for answer in answers] == [record.unique_key for record in (first, second, third)]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("code", [10, 320])
@pytest.mark.parametrize("properties", ["", "WAIT\x01true\x02"])
def test_a_batch_without_a_unique_key_is_answered_without(
    bench: Bench, code: int, properties: str, binary: bool
) -> None:
    """As the Go and C++ clients send it; the Java client's batches have one."""
    messages = [BatchMessage(b"%d" % number, b"TAGS\x01TagA\x02") for number in range(5)]
    result = bench.feed(batch_frame(messages, code=code, properties=properties, binary=binary))
    assert len(result.queues) == 5
    answer = decode_command(b"".join(result.replies)[4:])
    assert answer.ext_fields is not None
    assert "transactionId" not in answer.ext_fields
    assert answer.ext_fields["msgId"].count(",") == 4


def test_a_part_of_a_frame_waits(bench: Bench) -> None:
    frame = send_frame()
    for size_bytes in range(len(frame)):
        assert bench.feed(frame[:size_bytes]).consumed == 0
    assert bench.feed(frame, frame[:-1]).consumed == len(frame)


def test_ipv6_peers_are_left_to_ordinary_code(bench: Bench) -> None:
    result = bench.path.feed(memoryview(send_frame()), encode_host(("::1", 5)))
    assert result.consumed == 0


def test_without_wait_is_left_alone_where_sends_wait_for_the_flush(tmp_path: Path) -> None:
    """It is answered before the flush, and its neighbours are not."""
    bench = Bench(tmp_path, waits_for_flush=True)
    hasty = send_frame(properties={"UNIQ_KEY": unique_key(1), "WAIT": "false"})
    patient = send_frame(properties={"UNIQ_KEY": unique_key(1), "WAIT": "true"})
    assert bench.feed(hasty).consumed == 0
    assert bench.feed(patient, hasty).consumed == len(patient)
    bench.store.close()


def test_a_log_that_refuses_leaves_the_queues_as_they_were(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is consumed: ordinary code answers each frame with its error."""
    bench.feed(send_frame(), batch_frame([BatchMessage(b"x")] * 2))
    state = bench.state()

    def no_room(data: bytes) -> int:
        raise DiskFullError("no room left on the disk")

    monkeypatch.setattr(bench.store.commit_log, "append", no_room)
    result = bench.feed(send_frame(), batch_frame([BatchMessage(b"x")] * 3), send_frame(queue_id=3))
    assert (result.consumed, result.replies, result.queues) == (0, [], [])
    assert bench.state() == state
    monkeypatch.undo()
    assert bench.feed(send_frame()).consumed


def test_frames_of_many_peers_are_stored_with_one_write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own born host; what is not for the fast path is left out, and a one-way send has no answer."""
    writes: list[int] = []
    append = bench.store.commit_log.append

    def count(data: bytes) -> int:
        writes.append(len(data))
        return append(data)

    monkeypatch.setattr(bench.store.commit_log, "append", count)
    other = encode_host(("10.1.2.3", 99))
    frames = [
        (send_frame(queue_id=1, body=b"one"), BORN),
        (send_frame(topic="unknown"), other),
        (send_frame(queue_id=1, body=b"two", flag=2), other),
        (send_frame(queue_id=2, body=b"three", opaque=9), other),
    ]
    result = bench.path.feed_frames(frames)
    first, unknown, oneway, last = result.answers
    assert (unknown, oneway) == (None, b"")
    assert first is not None
    assert last is not None
    assert [decode_command(answer[4:]).ext_fields["queueOffset"] for answer in (first, last)] == ["0", "0"]
    assert len(writes) == 1
    records = list(iterate_records(bench.store.commit_log.record_view(0, result.append_end)))
    assert [(bytes(record.body), record.born_host) for record in records] == [
        (b"one", BORN_HOST),
        (b"two", ("10.1.2.3", 99)),
        (b"three", ("10.1.2.3", 99)),
    ]
    assert [queue.queue_id for queue in result.queues] == [1, 1, 2]


def test_frames_are_all_left_when_the_log_refuses(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a chunk is."""
    state = bench.state()

    def no_room(data: bytes) -> int:
        raise DiskFullError("no room left on the disk")

    monkeypatch.setattr(bench.store.commit_log, "append", no_room)
    result = bench.path.feed_frames([(send_frame(), BORN), (send_frame(flag=2), BORN), (b"\0\0\0\4none", BORN)])
    assert (result.answers, result.queues) == ([None, None, None], [])
    assert bench.state() == state


def test_a_read_only_log_is_left_to_ordinary_code(bench: Bench) -> None:
    bench.store.commit_log.pause("disk is full")
    assert bench.feed(send_frame()).consumed == 0
    bench.store.commit_log.resume()
    assert bench.feed(send_frame()).consumed


def test_a_chunk_is_counted_by_runs_of_a_topic(bench: Bench) -> None:
    """So that statistics cost a chunk, not a message."""
    bench.targets["TopicB"] = SendTarget(
        "TopicB", queues={0: bench.store.queues.find_or_create("TopicB", 0)}, queue_count=1, write_queue_count=1
    )
    frames = [send_frame(topic=topic) for topic in ("TopicA", "TopicA", "TopicB", "TopicA")]
    result = bench.feed(*frames)
    sizes = [record.size_bytes for record in iterate_records(bench.store.commit_log.record_view(0, result.append_end))]
    assert sorted(bench.puts) == sorted(
        [("TopicA", 2, sizes[0] + sizes[1]), ("TopicB", 1, sizes[2]), ("TopicA", 1, sizes[3])]
    )
