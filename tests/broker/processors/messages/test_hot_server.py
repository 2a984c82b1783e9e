"""The hot server on a real socket: send, wait, pull, and a mixture of everything in one stream.

Covers `broker/sends/acknowledgements.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.broker.data_broker import data_broker
from tests.broker.pulling import pull_fields
from tests.broker.wire import HIGH_WATER_BYTES, Wire, split_frames
from tests.store.send_frames import batch_frame, send_frame, unique_key
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.records.batch import BatchMessage
from thermocline.remoting.records.message_record import iterate_records
from thermocline.store.config.store_config import FlushDiskType

TOPIC = "TopicA"
DEADLINE_S = 20


async def read_answers(reader: asyncio.StreamReader, count: int) -> dict[int, RemotingCommand]:
    answers: dict[int, RemotingCommand] = {}
    async with asyncio.timeout(DEADLINE_S):
        while len(answers) < count:
            size = await reader.readexactly(4)
            (answer,) = split_frames(size + await reader.readexactly(int.from_bytes(size, "big")))
            answers[answer.opaque] = answer
    return answers


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_a_stream_of_everything(tmp_path: Path, flush: FlushDiskType) -> None:
    """Sends that the fast path takes and leaves, batches and pulls: each answered, every message there once."""
    async with data_broker(tmp_path, topics=[TOPIC], flush_disk_type=flush, log_file_bytes=32 * 1024) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        frames: list[bytes] = []
        for number in range(300):
            opaque = 3 * number
            properties = {"UNIQ_KEY": unique_key(number), "WAIT": "true", "TAGS": "TagA"}
            if number % 7 == 0:
                del properties["UNIQ_KEY"]  # for ordinary code
            frames.append(send_frame(opaque=opaque, body=b"body-%d" % number, properties=properties))
            if number % 10 == 0:
                frames.append(batch_frame([BatchMessage(b"batch")] * 3, opaque=opaque + 1, queue_id=1))
            if number % 5 == 0:
                fields = pull_fields(0, maxMsgNums=1)
                frames.append(RemotingCommand(code=11, opaque=opaque + 2, ext_fields=fields).encode())
        data = b"".join(frames)
        for start in range(0, len(data), 1_711):
            writer.write(data[start : start + 1_711])
            await asyncio.sleep(0)
        answers = await read_answers(reader, len(frames))
        sends = [answers[3 * number] for number in range(300)]
        assert {answer.code for answer in sends} == {0}
        assert [int((answer.ext_fields or {})["queueOffset"]) for answer in sends] == list(range(300))
        assert all(answers[3 * number + 1].code == 0 for number in range(0, 300, 10))
        bodies: list[bytes] = []
        client = await broker.connect()
        while len(bodies) < 300:
            request = RemotingCommand.request(11, ext_fields=pull_fields(len(bodies)))
            answer = await broker.ask(request, client)
            assert answer.code == 0
            bodies += [record.body for record in iterate_records(bytes(answer.body))]
        assert bodies == [b"body-%d" % number for number in range(300)]
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_a_waiting_pull_across_connections(tmp_path: Path, flush: FlushDiskType) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], flush_disk_type=flush) as broker:
        consumer = await broker.connect()
        waiting = asyncio.ensure_future(
            broker.ask(RemotingCommand.request(11, ext_fields=pull_fields(0, sysFlag=6)), consumer)
        )
        # Requests of one connection are handled in order: with this answer the pull waits.
        await broker.ask(RemotingCommand.request(30, ext_fields={"topic": TOPIC, "queueId": "0"}), consumer)
        assert len(broker.long_polling) == 1
        producer = await broker.connect()
        command = RemotingCommand.request(
            310,
            ext_fields={"a": "p", "b": TOPIC, "e": "0", "i": f"UNIQ_KEY\x01{unique_key(1)}\x02"},
            body=b"for you",
        )
        sent = await broker.ask(command, producer)
        assert sent.code == 0
        answer = await asyncio.wait_for(waiting, DEADLINE_S)
        assert [record.body for record in iterate_records(bytes(answer.body))] == [b"for you"]


async def test_close_is_clean_and_the_store_opens_again(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and no waiter or thread is left behind."""
    async with data_broker(tmp_path, topics=[TOPIC], flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        producer = await broker.connect()
        for number in range(20):
            fields = {"a": "p", "b": TOPIC, "e": "0", "i": f"UNIQ_KEY\x01{unique_key(number)}\x02"}
            assert (await broker.ask(RemotingCommand.request(310, ext_fields=fields, body=b"x"), producer)).code == 0
    async with data_broker(tmp_path) as broker:
        queue = broker.store.queues.find(TOPIC, 0)
        assert queue is not None
        assert queue.next_offset == 20
        assert broker.store.recovery_report.scan_start_offset <= broker.store.commit_log.append_offset


async def test_a_client_that_takes_nothing_is_not_read_from(tmp_path: Path) -> None:
    """However many pulls it has sent in one go, little more than the high-water mark waits for it."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        sender = Wire(broker.dispatcher, broker.hot)
        for _ in range(4):
            sender.receive(send_frame(body=bytes(60_000)))
        wire = Wire(broker.dispatcher, broker.hot)
        wire.slow_down()
        pulls = [RemotingCommand(code=11, opaque=opaque, ext_fields=pull_fields(0)).encode() for opaque in range(100)]
        wire.receive(b"".join(pulls))
        answered: list[int] = []
        rounds = 0
        while len(answered) < 100:
            written = wire.catch_up()
            assert len(written) < HIGH_WATER_BYTES + 2 * 256 * 1024
            answered += [answer.opaque for answer in split_frames(written)]
            rounds += 1
        assert answered == list(range(100))
        assert rounds > 10


async def test_bytes_behind_a_send_that_waits_for_its_round(tmp_path: Path) -> None:
    """However few they are, they are handled behind it, also when ordinary code has to answer it."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        wire = Wire(broker.dispatcher, broker.hot)
        for reconsume_times in ("0", "17"):
            first, second = send_frame(opaque=1, j=reconsume_times), send_frame(opaque=2)
            wire.receive_in_round(first)
            wire.receive_in_round(second[:3])
            wire.end_round()
            wire.receive(second[3:])
            answers = await wire.wait_commands(2)
            assert [answer.opaque for answer in answers] == [1, 2]
            assert [answer.code for answer in answers] == [0, 0]
