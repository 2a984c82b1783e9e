"""Drives RocketMQ's C++ client through the C interface of librocketmq; its other half is `../cpp_agent.py`.

Run as a program, with the wheel on its path. A line of input is {"operation": name, ...}, a line of output
{"result": ...} or {"error": text}; what consumers receive waits here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

client: Any = import_module("rocketmq.client")
library: Any = import_module("rocketmq.ffi").dll

CONSUME_SUCCESS = 0
RECONSUME_LATER = 1
SEND_TIMEOUT_MS = 30_000


class Agent:
    """The clients, by their names."""

    def __init__(self) -> None:
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}
        self._received: dict[str, list[dict[str, Any]]] = {}
        self._arrived = threading.Condition()
        self._kept: list[Any] = []
        """What is shut down: the binding would shut it down again before it goes, and the library would crash."""

    # -- producers -----------------------------------------------------------------------------------------------------

    def produce(self, *, namesrv: str, kind: str, topic: str, start: int, count: int, **more: Any) -> list[Any]:
        """Send messages by number; the answers (status, message id, queue offset), none for one-way sends."""
        producer = self._producer(namesrv, f"{topic}-producers")
        messages = [self._message(topic, index, **more) for index in range(start, start + count)]
        if kind == "sync":
            return [producer.send_sync(message) for message in messages]
        if kind == "batch":
            return [producer.send_batch(messages)]
        if kind == "ordered":
            return [producer.send_orderly(message, start + number) for number, message in enumerate(messages)]
        if kind == "oneway":
            for message in messages:
                producer.send_oneway(message)
            return []
        if kind == "oneway-ordered":
            for number, message in enumerate(messages):
                producer.send_oneway_orderly(message, start + number)
            return []
        assert kind == "async", kind
        return [self._send_async(producer, message) for message in messages]

    def _send_async(self, producer: Any, message: Any) -> Any:
        answers: list[Any] = []
        is_answered = threading.Event()

        def answered(answer: Any) -> None:
            answers.append(answer)
            is_answered.set()

        producer.send_async(message, answered, lambda error: answered(repr(error)))
        assert is_answered.wait(SEND_TIMEOUT_MS / 1000)
        return answers[0]

    def _producer(self, namesrv: str, group: str) -> Any:
        producer = self._producers.get(group)
        if producer is None:
            producer = self._producers[group] = client.Producer(group, timeout=SEND_TIMEOUT_MS)
            producer.set_namesrv_addr(namesrv)
            producer.start()
        return producer

    def _message(self, topic: str, index: int, *, delay_level: int = 0, body_bytes: int = 0) -> Any:
        message = client.Message(topic)
        message.set_body(f"{topic}-{index}".ljust(body_bytes, "."))
        message.set_tags("even" if index % 2 == 0 else "odd")
        message.set_keys(f"key-{index}")
        message.set_property("index", str(index))
        if delay_level:
            message.set_delay_time_level(delay_level)
        return message

    # -- consumers -----------------------------------------------------------------------------------------------------

    def push(
        self, *, name: str, namesrv: str, group: str, topic: str, expression: str, ordered: bool, failures: int
    ) -> None:
        """Start a push consumer that fails each message so many times."""
        consumer = client.PushConsumer(group, orderly=ordered)
        consumer.set_namesrv_addr(namesrv)
        client.ffi_check(library.Subscribe(consumer._handle, topic.encode(), expression.encode()))
        received = self._received[name] = []

        def receive(_consumer: int, handle: int) -> int:
            message = client.RecvMessage(handle)
            with self._arrived:
                received.append(self._described(message))
                self._arrived.notify_all()
            return RECONSUME_LATER if message.reconsume_times < failures else CONSUME_SUCCESS

        consumer._register_callback(receive)
        consumer.start()
        self._consumers[name] = consumer

    def received(self, *, name: str, count: int, timeout_ms: int) -> list[dict[str, Any]]:
        """Wait until consumer `name` holds so many messages, and take what it holds."""
        received = self._received[name]
        with self._arrived:
            self._arrived.wait_for(lambda: len(received) >= count, timeout_ms / 1000)
            taken, received[:] = received[:], []
        return taken

    def stop(self, *, name: str) -> None:
        """Shut a push consumer down."""
        self._shut_down(self._consumers.pop(name))

    def pull(self, *, namesrv: str, group: str, topic: str, expression: str) -> list[dict[str, Any]]:
        """Every message of a topic, by offsets."""
        consumer = client.PullConsumer(group)
        consumer.set_namesrv_addr(namesrv)
        consumer.start()
        try:
            return [self._described(message) for message in consumer.pull(topic, expression)]
        finally:
            self._shut_down(consumer)

    def _shut_down(self, consumer: Any) -> None:
        consumer.shutdown()
        self._kept.append(consumer)

    def _described(self, message: Any) -> dict[str, Any]:
        return {
            "index": int(message.get_property("index")),
            "body": message.body.decode(),
            "tags": message.tags.decode(),
            "keys": message.keys.decode(),
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "reconsume_times": message.reconsume_times,
            "message_id": message.id,
        }


def main() -> None:
    """Answer requests until the input ends."""
    agent = Agent()
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library writes to the standard output
    operations: dict[str, Callable[..., Any]] = {
        name: getattr(agent, name) for name in ("produce", "push", "received", "stop", "pull")
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": operations[request.pop("operation")](**request)}
        except Exception as error:  # noqa: BLE001  # the test receives the error
            answer = {"error": repr(error)}
        output.write(json.dumps(answer) + "\n")
        output.flush()
    os._exit(0)  # the library's threads end with the process, and some of them badly on its way out


if __name__ == "__main__":
    main()
