"""RocketMQ's official Python gRPC client under load: HOST:PORT PREFIX load PERIOD_MS plain.

Sends a message every PERIOD_MS and consumes all that is in the topic, until its input ends; a line of input ends the
sending. Prints "ready", "sent MILLISECONDS BODY" when a message is acknowledged, "got MILLISECONDS BODY" when one is
received, and "stopped" behind the last that it sent. It uses nothing of Thermocline.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib import import_module
from typing import Any

clients: Any = import_module("rocketmq.v5.client")
consumers: Any = import_module("rocketmq.v5.consumer")
models: Any = import_module("rocketmq.v5.model")
producers: Any = import_module("rocketmq.v5.producer")
push: Any = import_module("rocketmq.v5.consumer.push.message_listener")

notes = os.fdopen(os.dup(1), "w")
lock = threading.Lock()


def note(what: str, body: str) -> None:
    with lock:
        notes.write(f"{what} {time.time_ns() // 1_000_000} {body}\n")
        notes.flush()


class Listener(push.MessageListener):  # type: ignore[misc]  # the client is not typed
    """Notes what comes."""

    def consume(self, message: Any) -> Any:
        note("got", message.body.decode())
        return push.ConsumeResult.SUCCESS


def main() -> None:
    endpoint, prefix, scenario, period_ms = sys.argv[1:5]
    topic = f"{prefix}NORMAL"
    configuration = clients.ClientConfiguration(endpoint, clients.Credentials(), "", 3)
    everything = {topic: models.FilterExpression("*")}
    consumer = consumers.PushConsumer(configuration, f"{prefix}-{scenario}-python", Listener(), everything)
    consumer.startup()
    producer = producers.Producer(configuration, (topic,))
    producer.startup()
    note("ready", "")
    stopped = threading.Event()

    def send() -> None:
        number = 0
        while not stopped.wait(int(period_ms) / 1000):
            message = models.Message()
            message.topic, message.body = topic, f"python-{number}".encode()
            try:
                producer.send(message)
                note("sent", f"python-{number}")
            except Exception as error:  # noqa: BLE001  # not acknowledged: it may be there or not
                sys.stderr.write(f"{error}\n")
            number += 1
        note("stopped", "")

    sender = threading.Thread(target=send)
    sender.start()
    for _ in sys.stdin:
        stopped.set()
    stopped.set()
    sender.join()
    os._exit(0)  # the client's threads do not end


os.dup2(2, 1)  # what the client prints is no note
main()
