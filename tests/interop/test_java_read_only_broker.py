"""The official Java client, unmodified, at a read-only broker: history by offset, time and key, while the writer runs.

The read-only broker has a NameServer of its own, so that its clients see no other broker; the writer's producer
goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.cluster import READY_TIMEOUT_S, Cluster, settings_environment, thermocline_cluster
from tests.interop.java_agent import JavaAgent, JavaAgentError, ReceivedMessage, message_body
from tests.waiting import wait_until
from thermocline.localstack.child_process import ChildProcess
from thermocline.remoting.response_code import ResponseCode

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-cold")]

TOPIC = "ReadOnlyHistory"
QUEUE_COUNT = 3
COUNT, MORE_COUNT = 240, 60
BODY_BYTES = 300
BROKER = "broker-a-read-only"
END_OF_TIME_MS = (1 << 63) - 1
WRITER_SETTINGS = {"coldSealAgeMs": "300", "coldAccountIntervalMs": "50", "coldStateIntervalMs": "300"}
READER_SETTINGS = {"coldFollowIntervalMs": "50", "coldStateIntervalMs": "300"}
COMMAND = str(Path(sys.executable).parent / "thermocline")


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """A writer, and the NameServer at which only the read-only broker of its history is registered."""

    writer: Cluster
    namesrv: str

    @property
    def agent(self) -> JavaAgent:
        """It drives the clients of both."""
        return self.writer.agent

    def produce(self, *, start: int, count: int) -> None:
        """The writer goes on."""
        answers = self.agent.produce(
            kind="sync",
            name="read-only-writer",
            group="read-only-writers",
            namesrv=self.writer.namesrv,
            topic=TOPIC,
            prefix=TOPIC,
            tags=["red", "green"],
            body_bytes=BODY_BYTES,
            count=count,
            start=start,
        )
        assert {answer.status for answer in answers} == {"SEND_OK"}

    def served_count(self) -> int:
        """How many messages the read-only broker serves; 0 while it does not have the topic."""
        try:
            queues = self.agent.queue_offsets(self.namesrv, TOPIC)
        except JavaAgentError:
            return 0
        return sum(queue["max_offset"] - queue["min_offset"] for queue in queues)

    def until_served(self, count: int) -> None:
        """Wait until so many messages are."""
        wait_until(lambda: self.served_count() == count, what=f"{count} messages are served read-only")

    def by_key(self, key: str, *, begin_ms: int = 0, end_ms: int = END_OF_TIME_MS) -> list[ReceivedMessage]:
        """What `queryMessage` gives."""
        answer = self.agent.call(
            "query_key", namesrv=self.namesrv, topic=TOPIC, key=key, begin_ms=begin_ms, end_ms=end_ms
        )
        return [ReceivedMessage.read({"broker_name": "", **fields}) for fields in answer]

    def by_unique_id(self, message_id: str) -> ReceivedMessage:
        """What `queryMessageByUniqKey` gives."""
        fields = self.agent.call("query_unique_id", namesrv=self.namesrv, topic=TOPIC, id=message_id)
        return ReceivedMessage.read({"broker_name": "", **fields})


@contextlib.contextmanager
def daemon(
    directory: Path, name: str, arguments: Sequence[str], *, settings: dict[str, str], ready: str
) -> Iterator[str]:
    """A command that serves; the address that it says in its ready line."""
    directory.mkdir(parents=True, exist_ok=True)
    process = ChildProcess(
        [COMMAND, *arguments],
        log_path=directory / f"{name}.log",
        working_directory=directory,
        environment=settings_environment(settings),
    )
    pattern = re.compile(ready, re.MULTILINE)
    try:
        process.wait_until(lambda: pattern.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
        found = pattern.search(process.output())
        assert found is not None
        yield found[1]
    finally:
        process.stop()


@pytest.fixture(scope="module")
def read_only(java_agent_process: JavaAgent, module_folder: Path) -> Iterator[ReadOnly]:
    """Both brokers; the topic has `COUNT` messages, all of which are served."""
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            thermocline_cluster(java_agent_process, module_folder / "writer", settings=WRITER_SETTINGS)
        )
        namesrv = stack.enter_context(
            daemon(
                module_folder,
                "namesrv",
                ["namesrv", "--listen", "127.0.0.1:0"],
                settings={},
                ready=r"^ready namesrv=(\S+)",
            )
        )
        writer.make_topic(TOPIC, queue_count=QUEUE_COUNT)
        both = ReadOnly(writer, namesrv)
        both.produce(start=0, count=COUNT)
        source = (module_folder / "writer" / "cold").as_uri()
        data = str(module_folder / "reader")
        arguments = ["broker", "--read-only-from", source, "--data", data, "--namesrv", namesrv]
        stack.enter_context(
            daemon(
                module_folder,
                "reader",
                [*arguments, "--listen", "127.0.0.1:0"],
                settings=READER_SETTINGS,
                ready=r"^ready broker=(\S+)",
            )
        )
        both.until_served(COUNT)
        yield both
        java_agent_process.call("stop_producers", namesrv=namesrv)


def key_of(message: ReceivedMessage) -> tuple[object, ...]:
    """All of a message that does not depend on who served it."""
    own = {name: value for name, value in message.properties.items() if name not in ("MIN_OFFSET", "MAX_OFFSET")}
    return (
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_size,
        message.message_id,
        message.store_timestamp_ms,
        message.born_timestamp_ms,
        message.sys_flag,
        message.body,
        sorted(own.items()),
    )


def test_history_is_read_by_offset_while_the_writer_goes_on(
    read_only: ReadOnly, request: pytest.FixtureRequest
) -> None:
    agent, group = read_only.agent, "read-only-push"
    agent.call("start_push_consumer", name=group, namesrv=read_only.namesrv, group=group, topics={TOPIC: "*"})
    request.addfinalizer(lambda: agent.stop_consumer(group))
    count = read_only.served_count()
    received = agent.received(group, count=count)
    read_only.produce(start=count, count=MORE_COUNT)
    received += agent.received(group, count=MORE_COUNT)
    assert Counter(int(message.properties["index"]) for message in received) == Counter(range(count + MORE_COUNT))
    for message in received:
        assert message.body == message_body(TOPIC, int(message.properties["index"]), BODY_BYTES)
    # Offset by offset it is what the writer serves.
    theirs = agent.read_topic(read_only.writer.namesrv, TOPIC)
    ours = agent.read_topic(read_only.namesrv, TOPIC)
    assert {message.broker_name for message in ours} == {BROKER}
    assert sorted(map(key_of, ours)) == sorted(map(key_of, theirs))


def test_history_is_found_by_time(read_only: ReadOnly) -> None:
    messages = read_only.agent.read_topic(read_only.namesrv, TOPIC)
    middle_ms = messages[len(messages) // 2].store_timestamp_ms
    newest_ms = max(message.store_timestamp_ms for message in messages)
    for time_ms in (0, middle_ms, middle_ms + 1, newest_ms):
        queues = read_only.agent.queue_offsets(read_only.namesrv, TOPIC, timestamp_ms=time_ms)
        assert len(queues) == QUEUE_COUNT
        for queue in queues:
            mine = [message for message in messages if message.queue_id == queue["queue_id"]]
            assert (queue["min_offset"], queue["max_offset"]) == (0, len(mine))
            assert queue["earliest_ms"] == mine[0].store_timestamp_ms
            later = (message.queue_offset for message in mine if message.store_timestamp_ms >= time_ms)
            assert queue["found_offset"] == next(later, len(mine))


def test_history_is_found_by_key_and_unique_id(read_only: ReadOnly) -> None:
    messages = read_only.agent.read_topic(read_only.namesrv, TOPIC)
    for message in (messages[0], messages[len(messages) // 2], messages[-1]):
        assert message.keys is not None
        assert [key_of(found) for found in read_only.by_key(message.keys)] == [key_of(message)]
        assert key_of(read_only.by_unique_id(message.message_id)) == key_of(message)
        time_ms = message.store_timestamp_ms
        assert len(read_only.by_key(message.keys, begin_ms=time_ms, end_ms=time_ms)) == 1
    with pytest.raises(JavaAgentError):  # the client's own way to say that there is none
        read_only.by_key("missing")


@pytest.mark.parametrize("queue_id", range(QUEUE_COUNT))
def test_a_send_is_refused(read_only: ReadOnly, queue_id: int) -> None:
    count = read_only.served_count()
    code = read_only.agent.call(
        "send_to", namesrv=read_only.namesrv, topic=TOPIC, broker_name=BROKER, queue_id=queue_id
    )
    assert code == ResponseCode.NO_PERMISSION
    assert read_only.served_count() == count
