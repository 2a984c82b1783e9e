"""The demo's weather by gRPC: RocketMQ's official Python client sends every reading to a proxy, and receives them all.

    python grpc_weather.py HOST:PORT TOPIC GROUP < readings

A line of `readings` is {"body": text, "tag": text, "key": text}. When every message is received this prints
{"sent": count, "received": count, "seconds": number, "repeated": count}. It needs the client on PYTHONPATH and nothing
of Thermocline.
"""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Any

clients: Any = import_module("rocketmq.v5.client")
consumers: Any = import_module("rocketmq.v5.consumer")
listeners: Any = import_module("rocketmq.v5.consumer.push.message_listener")
models: Any = import_module("rocketmq.v5.model")
producers: Any = import_module("rocketmq.v5.producer")

SENDS_AT_A_TIME = 64
WAIT_S = 180.0


class Listener(listeners.MessageListener):  # type: ignore[misc]  # the client is not typed
    """Counts what comes, by message id."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def consume(self, message: Any) -> Any:
        with self._lock:
            self.counts[message.message_id] = self.counts.get(message.message_id, 0) + 1
        return listeners.ConsumeResult.SUCCESS


def send_all(producer: Any, topic: str) -> list[str]:
    """Send each line of the input; the message ids."""
    under_way: deque[Future[Any]] = deque()
    ids = []
    for line in sys.stdin:
        reading = json.loads(line)
        message = models.Message()
        message.topic, message.body = topic, reading["body"].encode()
        message.tag, message.keys = reading["tag"], reading["key"]
        under_way.append(producer.send_async(message))
        if len(under_way) >= SENDS_AT_A_TIME:
            ids.append(under_way.popleft().result(WAIT_S).message_id)
    return ids + [each.result(WAIT_S).message_id for each in under_way]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_S:.0f} s for {what}")
        time.sleep(0.05)


def main() -> None:
    """See the module."""
    endpoint, topic, group = sys.argv[1:]
    configuration = clients.ClientConfiguration(endpoint, clients.Credentials(), "", 10)
    listener = Listener()
    consumer = consumers.PushConsumer(configuration, group, listener, {topic: models.FilterExpression("*")})
    consumer.startup()
    producer = producers.Producer(configuration, (topic,))
    producer.startup()
    started = time.monotonic()
    sent = set(send_all(producer, topic))
    wait_until(lambda: sent <= listener.counts.keys(), f"{len(sent)} messages, got {len(listener.counts)}")
    seconds = time.monotonic() - started
    repeated = sum(listener.counts.values()) - len(listener.counts)
    producer.shutdown()
    consumer.shutdown()
    answer = {"sent": len(sent), "received": len(listener.counts), "seconds": seconds, "repeated": repeated}
    os.write(answers, json.dumps(answer).encode())
    os._exit(0)  # the client's threads do not end


answers = os.dup(1)
os.dup2(2, 1)  # what the client prints is no answer
main()
