"""The fast path against ordinary code: the same frames leave the same bytes in the log, queues and answers.

Covers `remoting/answer_template.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.wire import Wire
from tests.store.send_frames import batch_frame, properties_text, send_frame, unique_key
from thermocline.broker.processors.messages.hot_server import HotServer
from thermocline.remoting.command import decode_command
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.records.batch import BatchMessage
from thermocline.store.config.store_config import FlushDiskType

TOPICS = ("TopicA", "TopicB", "%RETRY%group", "%DLQ%group")

words = st.text(st.sampled_from("abcÄß标DELAYTIMER_ "), max_size=12)
names = st.sampled_from(
    [
        "KEYS",
        "TAGS",
        "XTAGS",
        "colour",
        "farbe-标",
        "UNIQ_KEY",
        "WAIT",
        "DELAY",
        "TIMER_DELAY_SEC",
        "TIMER_OUT_MS",
        "TRAN_MSG",
        "MSG_REGION",
        "TRACE_ON",
        "CLUSTER",
        "POP_CK",
        "POP_CK_OFFSET",
        "INNER_NUM",
        "RECONSUME_TIME",
        "_SYS_MSG_PRIORITY_",
    ]
)
plain_properties = st.fixed_dictionaries(
    {"UNIQ_KEY": st.integers(0, 999).map(unique_key)},
    optional={"KEYS": words, "TAGS": words, "WAIT": st.sampled_from(["true", "false"]), "colour": words},
).map(properties_text)
values = st.one_of(words, st.sampled_from(["0", "1", "3", "99", "true", "false"]))
any_properties = st.one_of(
    plain_properties,
    st.lists(st.tuples(names, values), max_size=6).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    ),
    plain_properties.map(lambda text: text.rstrip("\x02")),
    st.text(st.sampled_from("ab\x01\x02"), max_size=12),
)
keyless_properties = st.fixed_dictionaries(
    {}, optional={"KEYS": words, "TAGS": words, "WAIT": st.sampled_from(["true", "false"]), "colour": words}
).map(properties_text)
common_sends = st.builds(
    lambda queue_id, body, properties, opaque, code, binary: {
        "queue_id": queue_id,
        "body": body,
        "properties": properties,
        "opaque": opaque,
        "code": code,
        "binary": binary,
    },
    st.integers(0, 3),
    st.binary(min_size=1, max_size=200),
    st.one_of(plain_properties, plain_properties, keyless_properties),
    st.integers(0, 2**31 - 1),
    st.sampled_from([310, 310, 10]),
    st.booleans(),
)
any_sends = st.builds(
    lambda base, other: base | other,
    common_sends,
    st.fixed_dictionaries(
        {},
        optional={
            "topic": st.sampled_from(TOPICS),
            "queue_id": st.integers(-1, 5),
            "properties": any_properties,
            "flag": st.sampled_from([0, 2]),
            "code": st.sampled_from([310, 320, 10]),
            "body": st.one_of(st.just(b""), st.binary(min_size=1, max_size=3_000)),
            "f": st.sampled_from(["0", "1", "2", "257", "769", "4", "16", "64", "128", "8192", "-1"]),
            "g": st.sampled_from(["0", "-1", "1795247847083", "9223372036854775807"]),
            "h": st.sampled_from(["0", "7", "-2147483648", "2147483647"]),
            "j": st.sampled_from(["0", "1", "17"]),
            "m": st.sampled_from(["false", "true"]),
        },
    ),
)


def with_key(fields: dict[str, Any]) -> dict[str, Any]:
    """The send with a unique key of its own.

    The broker draws an id for a message without one before it can refuse it, and the answers of a round do not show
    when it handled a refused message.
    """
    text = fields["properties"]
    if "UNIQ_KEY" in text:
        return fields
    end = "" if not text or text.endswith("\x02") else "\x02"
    return fields | {"properties": f"{text}{end}UNIQ_KEY\x01{unique_key(1_000)}\x02"}


sends = st.one_of(common_sends, common_sends, any_sends).map(lambda fields: send_frame(**fields))
messages = st.builds(
    BatchMessage,
    st.binary(max_size=120),
    st.one_of(plain_properties, any_properties).map(str.encode),
    st.integers(-(2**31), 2**31 - 1),
)
batch_lists = st.lists(messages, max_size=8)
batches = st.builds(
    lambda messages, opaque, queue_id, sys_flag, code, properties, binary: batch_frame(
        messages, opaque=opaque, queue_id=queue_id, f=sys_flag, code=code, properties=properties, binary=binary
    ),
    st.one_of(batch_lists, batch_lists, st.just([])),
    st.integers(0, 999),
    st.integers(-1, 4),
    st.sampled_from(["0", "1"]),
    st.sampled_from([320, 320, 310, 10]),
    st.one_of(st.none(), any_properties, keyless_properties),
    st.booleans(),
)
damaged_batches = st.builds(
    lambda messages, damage: batch_frame(messages)[: -len(damage)] + damage,
    st.lists(messages, min_size=1, max_size=3),
    st.binary(min_size=1, max_size=22),
)
frames = st.lists(st.one_of(sends, sends, batches, damaged_batches), min_size=3, max_size=15)


class LastQueue:
    """In the place of chance: of several queues always the last, and no chance in ids."""

    def randrange(self, count: int) -> int:
        return count - 1

    def getrandbits(self, count: int) -> int:
        return 0


class CountingChunks:
    """Counts what the fast path takes."""

    def __init__(self, hot: HotServer) -> None:
        self._hot = hot
        self.taken_bytes = 0

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        taken = self._hot.feed(connection, buffer)
        self.taken_bytes += taken
        return taken

    def end_round(self) -> None:
        self._hot.end_round()


def log_bytes(broker: DataBroker) -> list[bytes]:
    """What every log file holds."""
    return [bytes(file.view) for file in broker.store.commit_log.files]


def queue_units(broker: DataBroker) -> dict[tuple[str, int], tuple[int, bytes]]:
    """Every queue's end and units."""
    return {
        (queue.topic, queue.queue_id): (queue.next_offset, queue.units(0, queue.next_offset))
        for queue in broker.store.queues
        if queue.next_offset
    }


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_both_ways_store_and_answer_the_same_bytes(
    tmp_path: Path, flush: FlushDiskType, case_count: Callable[..., int]
) -> None:
    """Whatever mixture of frames comes in whatever pieces, nothing tells which of the two has handled them."""
    store_settings: dict[str, Any] = {"log_file_bytes": 16 * 1024, "flush_disk_type": flush, "message_bytes_max": 2_500}
    async with (
        data_broker(tmp_path / "fast", topics=TOPICS, start=False, **store_settings) as fast,
        data_broker(tmp_path / "ordinary", topics=TOPICS, start=False, **store_settings) as ordinary,
    ):
        for broker in (fast, ordinary):
            broker.use_random(LastQueue())
        counting = CountingChunks(fast.hot)
        fast_wire = Wire(fast.dispatcher, counting)
        ordinary_wire = Wire(ordinary.dispatcher)

        @settings(max_examples=case_count(quick=60, soak=3_000), deadline=None, suppress_health_check=list(HealthCheck))
        @given(frames, st.integers(1, 10))
        def check(frames: list[bytes], piece_count: int) -> None:
            data = b"".join(frames)
            cuts = [len(data) * index // piece_count for index in range(piece_count + 1)]
            for start, end in pairwise(cuts):
                piece = data[start:end]
                fast_wire.receive(piece)
                ordinary_wire.receive(piece)
            answer = fast_wire.drain()
            assert answer == ordinary_wire.drain()
            assert not fast_wire.is_closed
            assert fast.store.commit_log.append_offset == ordinary.store.commit_log.append_offset
            for broker in (fast, ordinary):
                broker.clock.now_ms += 1

        check()
        assert counting.taken_bytes > 30_000, "the fast path has hardly been used"
        assert log_bytes(fast) == log_bytes(ordinary)
        assert queue_units(fast) == queue_units(ordinary)
        assert len(fast.store.commit_log.files) > 1, "no file was rolled"
        # The log holds what dispatch would make of it again.
        for queue in fast.store.queues:
            for offset in range(queue.next_offset):
                record = fast.store.read_record(queue.unit(offset).physical_offset)
                assert (record.topic, record.queue_id, record.queue_offset) == (queue.topic, queue.queue_id, offset)


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_a_round_of_many_connections_is_as_if_each_had_come_alone(
    tmp_path: Path, flush: FlushDiskType, case_count: Callable[..., int]
) -> None:
    """Single sends of many connections are stored together; each is answered as ordinary code answers it."""
    store_settings: dict[str, Any] = {"log_file_bytes": 16 * 1024, "flush_disk_type": flush, "message_bytes_max": 2_500}
    connection_count = 6
    async with (
        data_broker(tmp_path / "fast", topics=TOPICS, start=False, **store_settings) as fast,
        data_broker(tmp_path / "ordinary", topics=TOPICS, start=False, **store_settings) as ordinary,
    ):
        for broker in (fast, ordinary):
            broker.use_random(LastQueue())
        fast_wires = [Wire(fast.dispatcher, fast.hot) for _ in range(connection_count)]
        ordinary_wires = [Wire(ordinary.dispatcher) for _ in range(connection_count)]
        sends_of_a_connection = st.lists(
            st.one_of(common_sends, common_sends, any_sends.map(with_key)).map(
                lambda fields: send_frame(**fields | {"flag": 0})
            ),
            max_size=2,
        )
        taken_together = 0

        @settings(max_examples=case_count(quick=80, soak=3_000), deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(sends_of_a_connection, min_size=connection_count, max_size=connection_count))
        def check(sends: list[list[bytes]]) -> None:
            nonlocal taken_together
            for wire, frames in zip(fast_wires, sends, strict=True):
                for frame in frames:
                    wire.receive_in_round(frame)
            answers: list[list[bytes]] = []
            offset_before = fast.store.commit_log.append_offset
            fast.hot.end_round()
            taken_together += fast.store.commit_log.append_offset > offset_before
            for wire in fast_wires:
                wire.end_round()
                answers.append([command.encode() for command in wire.take_commands()])
            # What one round stores it may store in any order, as long as each connection's own is kept.
            for wire_number, frame in in_log_order(sends, answers):
                ordinary_wires[wire_number].receive(frame)
            assert answers == [[command.encode() for command in wire.take_commands()] for wire in ordinary_wires]
            assert fast.store.commit_log.append_offset == ordinary.store.commit_log.append_offset
            for broker in (fast, ordinary):
                broker.clock.now_ms += 1

        check()
        assert taken_together > 30, "hardly a round was handled at its end"
        assert log_bytes(fast) == log_bytes(ordinary)
        assert queue_units(fast) == queue_units(ordinary)
        assert len(fast.store.commit_log.files) > 1, "no file was rolled"


def in_log_order(sends: list[list[bytes]], answers: list[list[bytes]]) -> list[tuple[int, bytes]]:
    """The frames with their connections' numbers, in the order in which the log holds what they stored."""
    placed: list[tuple[float, int, bytes]] = []
    for number, (frames, of_connection) in enumerate(zip(sends, answers, strict=True)):
        assert len(frames) == len(of_connection)
        place = -1.0
        for frame, answer in zip(frames, of_connection, strict=True):
            message_id = (decode_command(answer[4:]).ext_fields or {}).get("msgId")
            # One that stored nothing keeps its place behind the one before it on its connection.
            place = int(message_id[16:], 16) if message_id else place + 0.5
            placed.append((place, number, frame))
    return [(number, frame) for _, number, frame in sorted(placed, key=lambda item: item[0])]
