"""Which requests of which client take the fast path: `docs/hot-path.md` has the table that is made here.

`recorded_sends.json` holds one whole frame of each form, as the clients sent it through a TCP tap: Java 5.5.0 and 4.9.8
(with JSON and binary headers, and 4.9 with the long names of SEND_MESSAGE), Go 2.1.2, the C++ client (librocketmq of
the Python wheel 0.4.4) and this project's SDK.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.test_fast_path_and_ordinary_code import LastQueue, log_bytes, queue_units
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hot-path.md"
RECORDED = Path(__file__).resolve().parent / "recorded_sends.json"
TOPICS = ("HotPath", "Inst%HotPath", "RMQ_SYS_TRACE_TOPIC")
CONSUMER = "consumer"
PULL_FORM = "pull"
FAST, ORDINARY, NOT_RECORDED = "fast", "ordinary", ""


def recorded_frames() -> dict[str, dict[str, bytes]]:
    """Form -> client -> frame."""
    frames: dict[str, dict[str, bytes]] = {}
    for entry in json.loads(RECORDED.read_text()):
        client, _, form = entry["form"].partition(": ")
        frames.setdefault(PULL_FORM if form == CONSUMER else form, {})[client] = base64.b64decode(entry["frame"])
    return frames


class OrdinaryCode:
    """The dispatcher, which counts what comes to it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.handled_count = 0

    def connection_opened(self, connection: Connection) -> None:
        self._dispatcher.connection_opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        self._dispatcher.connection_closed(connection)

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        self.handled_count += 1
        return self._dispatcher.handle(connection, command)


async def subscribe(broker: DataBroker, wire: Wire, pull: bytes) -> None:
    """Let the group of this pull be known, as its consumer's heartbeat does."""
    fields = decode_command(pull[4:]).ext_fields or {}
    heartbeat = {
        "clientID": "recorded",
        "consumerDataSet": [
            {
                "groupName": fields["consumerGroup"],
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {
                        "topic": fields["topic"],
                        "subString": "*",
                        "subVersion": int(fields["subVersion"]),
                        "expressionType": "TAG",
                    }
                ],
            }
        ],
    }
    heart_beat = RemotingCommand.request(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode())
    wire.receive(heart_beat.encode())
    # Before the answer the broker tells the consumer of its group's members.
    _notice, answer = await wire.wait_commands(2)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def paths(tmp_path: Path) -> dict[str, dict[str, str]]:
    """Form -> client -> path; every frame also goes to a broker without a fast path, which must do the same."""
    taken: dict[str, dict[str, str]] = {}
    async with (
        data_broker(tmp_path / "fast", topics=TOPICS, start=False) as fast,
        data_broker(tmp_path / "ordinary", topics=TOPICS, start=False) as ordinary,
    ):
        handlers = fast.dispatcher, ordinary.dispatcher  # with the control plane, for heartbeats
        for broker in (fast, ordinary):
            broker.use_random(LastQueue())
            for topic in TOPICS:
                for queue_id in range(4):
                    broker.store.queues.find_or_create(topic, queue_id)
        code = OrdinaryCode(fast.dispatcher)
        for form, of_form in recorded_frames().items():
            for client, frame in of_form.items():
                wires = Wire(code, fast.hot), Wire(ordinary.dispatcher)
                if form == PULL_FORM:
                    for broker, handler in zip((fast, ordinary), handlers, strict=True):
                        await subscribe(broker, Wire(handler), frame)
                handled_before = code.handled_count
                for wire in wires:
                    wire.receive(frame)
                answers = [wire.drain() for wire in wires]
                assert answers[0] == answers[1], (client, form)
                is_one_way = decode_command(frame[4:]).is_oneway
                assert bool(answers[0]) is not is_one_way, (client, form)
                for answer in answers if not is_one_way else ():
                    assert decode_command(answer[4:]).code == ResponseCode.SUCCESS, (client, form)
                taken.setdefault(form, {})[client] = ORDINARY if code.handled_count > handled_before else FAST
        assert log_bytes(fast) == log_bytes(ordinary)
        assert queue_units(fast) == queue_units(ordinary)
    return taken


def table(taken: dict[str, dict[str, str]]) -> str:
    """The table of the page."""
    clients = list(dict.fromkeys(client for of_form in taken.values() for client in of_form))
    lines = [["form", *clients], ["---"] * (len(clients) + 1)]
    lines += [[form, *(of_form.get(client, NOT_RECORDED) for client in clients)] for form, of_form in taken.items()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


async def test_the_page_says_which_form_takes_which_path(tmp_path: Path) -> None:
    """Both paths answer and store the same; the table is what was seen."""
    made = table(await paths(tmp_path))
    assert made in PAGE.read_text(), f"docs/hot-path.md is to hold this table:\n{made}"


async def test_every_common_form_takes_the_fast_path(tmp_path: Path) -> None:
    """What falls off it has a reason: it is stored elsewhere than where it is sent to."""
    falling = {
        form for form, of_form in (await paths(tmp_path)).items() for path in of_form.values() if path == ORDINARY
    }
    assert falling == {"delay level", "half message"}


@pytest.mark.parametrize("client", ["Java 5.5", "Java 5.5 binary", "Go"])
async def test_a_pull_that_waits_is_answered_alike(tmp_path: Path, client: str) -> None:
    """In either serialisation: the bytes of the answer that the next message brings are those of ordinary code."""
    frames = recorded_frames()
    pull, message = frames[PULL_FORM][client], send_frame(topic="HotPath", queue_id=queue_id_of(frames, client))
    answers: list[bytes] = []
    for name in (FAST, ORDINARY):
        async with data_broker(tmp_path / name, topics=TOPICS, start=False) as broker:
            chunk_handler = broker.hot if name == FAST else None
            await subscribe(broker, Wire(broker.dispatcher), pull)
            producer = Wire(broker.dispatcher, chunk_handler)
            consumer = Wire(broker.dispatcher, chunk_handler)
            consumer.receive(pull)
            assert len(broker.long_polling) == 1
            producer.receive(message)
            broker.hot.end_round()
            (answer,) = await consumer.wait_commands()
            assert (answer.code, len(list(iterate_records(answer.body)))) == (ResponseCode.SUCCESS, 1)
            answers.append(answer.encode())
    assert answers[0] == answers[1]


def queue_id_of(frames: dict[str, dict[str, bytes]], client: str) -> int:
    """The queue that this client's recorded pull reads."""
    return int((decode_command(frames[PULL_FORM][client][4:]).ext_fields or {})["queueId"])
