"""Drives RocketMQ's official Python gRPC client; its other half is `../grpc_python_agent.py`.

Run as a program, with the wheels on its path. A line of input is {"operation": name, ...}, a line of output
{"result": ...} or {"error": text}; what consumers receive waits here. It uses nothing of Thermocline.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

grpc: Any = import_module("grpc")
json_format: Any = import_module("google.protobuf.json_format")
clients: Any = import_module("rocketmq.v5.client")
consumers: Any = import_module("rocketmq.v5.consumer")
models: Any = import_module("rocketmq.v5.model")
producers: Any = import_module("rocketmq.v5.producer")
push: Any = import_module("rocketmq.v5.consumer.push.message_listener")
protocol: Any = import_module("rocketmq.grpc_protocol")
services: Any = import_module("rocketmq.grpc_protocol.service_pb2_grpc")
transactions: Any = import_module("rocketmq.v5.producer.producer")

REQUEST_TIMEOUT_S = 10
IS_TLS = os.environ.get("INTEROP_TLS") == "true"
"""Of every client."""


def shown(message: Any) -> dict[str, Any]:
    """A received message."""
    return {
        "body": message.body.decode(),
        "topic": message.topic,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "message_id": message.message_id,
        "group": message.message_group,
        "attempt": message.delivery_attempt,
        "time": time.time(),
    }


class Listener(push.MessageListener):  # type: ignore[misc]  # the client is not typed
    """Keeps what comes, and fails as often as it is to."""

    def __init__(self, received: list[dict[str, Any]], arrived: threading.Condition, more: dict[str, Any]) -> None:
        self._received, self._arrived = received, arrived
        self._fails_below = more.get("fails_below", 0)
        self._work_s = more.get("work_s", 0.0)

    def consume(self, message: Any) -> Any:
        is_failed = message.delivery_attempt <= self._fails_below
        with self._arrived:
            self._received.append(shown(message))
            self._arrived.notify_all()
        if self._work_s:
            threading.Event().wait(self._work_s)
        return push.ConsumeResult.FAILURE if is_failed else push.ConsumeResult.SUCCESS


class Checker(transactions.TransactionChecker):  # type: ignore[misc]
    """Answers a check by what the body says: it commits, rolls back, or leaves open what its producer ends."""

    def __init__(self, checked: list[str], arrived: threading.Condition) -> None:
        self._checked, self._arrived = checked, arrived

    def check(self, message: Any) -> Any:
        body = message.body.decode()
        with self._arrived:
            self._checked.append(body)
            self._arrived.notify_all()
        resolution = protocol.TransactionResolution
        if body.startswith("commit"):
            return resolution.COMMIT
        return resolution.ROLLBACK if body.startswith("rollback") else resolution.TRANSACTION_RESOLUTION_UNSPECIFIED


class Agent:
    """The clients, by their names."""

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}
        self._open_transactions: dict[str, Any] = {}
        self._received: dict[str, list[dict[str, Any]]] = {}
        self._held: dict[str, dict[str, Any]] = {}
        self._checked: list[str] = []
        self._arrived = threading.Condition()

    def start_producer(
        self, *, name: str, endpoint: str, topics: list[str], checks: bool = False, tls: bool = False
    ) -> None:
        checker = Checker(self._checked, self._arrived) if checks else None
        producer = producers.Producer(self._configuration(endpoint), tuple(topics), checker, tls or IS_TLS)
        producer.startup()
        self._clients[name] = producer

    def send(self, *, name: str, topic: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send one after another; the receipts."""
        receipts = []
        for fields in messages:
            receipt = self._clients[name].send(self._message(topic, fields))
            receipts.append({"message_id": receipt.message_id, "recall_handle": receipt.recall_handle})
        return receipts

    def send_half(self, *, name: str, topic: str, transaction: str, body: str) -> None:
        """Send a half message, and keep its transaction open."""
        opened = self._clients[name].begin_transaction()
        self._clients[name].send(self._message(topic, {"body": body}), opened)
        self._open_transactions[transaction] = opened

    def end(self, *, transaction: str, commits: bool) -> None:
        opened = self._open_transactions.pop(transaction)
        opened.commit() if commits else opened.rollback()

    def checked(self, *, count: int, timeout_ms: int) -> list[str]:
        """The bodies of the transactions that were checked, once there are so many."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._checked) >= count, timeout_ms / 1000)
            return list(self._checked)

    def recall(self, *, name: str, topic: str, handle: str) -> str:
        message_id: str = self._clients[name].recall_message(topic, handle)
        return message_id

    def start_simple(
        self, *, name: str, endpoint: str, group: str, topic: str, tag: str = "*", sql: str = "", await_s: int = 1
    ) -> None:
        expression = models.FilterExpression(tag)
        if sql:
            expression = models.FilterExpression(sql, protocol.FilterType.SQL)
        consumer = consumers.SimpleConsumer(
            self._configuration(endpoint), group, {topic: expression}, await_duration=await_s, tls_enable=IS_TLS
        )
        consumer.startup()
        self._clients[name], self._held[name] = consumer, {}

    def receive(self, *, name: str, invisible_s: int = 30, count: int = 32) -> list[dict[str, Any]]:
        """Receive once; the messages are held here by their ids."""
        messages = self._clients[name].receive(count, invisible_s) or []
        for message in messages:
            self._held[name][message.message_id] = message
        return [shown(message) for message in messages]

    def ack(self, *, name: str, message_id: str) -> None:
        self._clients[name].ack(self._held[name].pop(message_id))

    def change(self, *, name: str, message_id: str, invisible_s: int) -> None:
        self._clients[name].change_invisible_duration(self._held[name][message_id], invisible_s)

    def start_push(self, *, name: str, endpoint: str, group: str, topic: str, tag: str = "*", **more: Any) -> None:
        received: list[dict[str, Any]] = []
        listener = Listener(received, self._arrived, more)
        consumer = consumers.PushConsumer(
            self._configuration(endpoint), group, listener, {topic: models.FilterExpression(tag)}, tls_enable=IS_TLS
        )
        consumer.startup()
        self._clients[name], self._received[name] = consumer, received

    def received(self, *, name: str, count: int, timeout_ms: int) -> list[dict[str, Any]]:
        """Take what a push consumer has, once it has so many."""
        with self._arrived:
            received = self._received[name]
            self._arrived.wait_for(lambda: len(received) >= count, timeout_ms / 1000)
            taken = list(received)
            received.clear()
        return taken

    def stop(self, *, name: str) -> None:
        self._clients.pop(name).shutdown()

    def rpc(
        self,
        *,
        endpoint: str,
        method: str,
        request: dict[str, Any],
        client_id: str | None = "raw-client",
        version: str = "5.1.2",
        timeout_ms: int = 10_000,
    ) -> dict[str, Any]:
        """Call one RPC by the client's own stub: its answers as JSON, and the status of gRPC."""
        metadata = [("x-mq-language", "PYTHON"), ("x-mq-client-version", version)]
        if client_id is not None:
            metadata.append(("x-mq-client-id", client_id))
        message = json_format.ParseDict(request, getattr(protocol, f"{method}Request")())
        with grpc.insecure_channel(endpoint) as channel:
            call = getattr(services.MessagingServiceStub(channel), method)
            try:
                answer = call(message, timeout=timeout_ms / 1000, metadata=metadata)
                answers = list(answer) if method in ("ReceiveMessage", "PullMessage") else [answer]
            except grpc.RpcError as error:
                return {"status": error.code().name, "details": error.details(), "answers": []}
        return {"status": "OK", "details": "", "answers": [json_format.MessageToDict(each) for each in answers]}

    def telemetry(
        self, *, endpoint: str, settings: dict[str, Any], client_id: str | None = "raw-client", stays_ms: int = 0
    ) -> dict[str, Any]:
        """Send settings on a Telemetry stream: the first answer, and the status of gRPC where the stream ended."""
        metadata = [("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2")]
        if client_id is not None:
            metadata.append(("x-mq-client-id", client_id))
        command = json_format.ParseDict({"settings": settings}, protocol.TelemetryCommand())
        ends = threading.Event()

        def commands() -> Any:
            yield command
            ends.wait(10)

        with grpc.insecure_channel(endpoint) as channel:
            stream = services.MessagingServiceStub(channel).Telemetry(commands(), metadata=metadata, timeout=10)
            try:
                answer = next(stream)
                ends.wait(stays_ms / 1000)
                return {"status": "OK", "details": "", "answers": [json_format.MessageToDict(answer)]}
            except grpc.RpcError as error:
                return {"status": error.code().name, "details": error.details(), "answers": []}
            finally:
                ends.set()

    def _configuration(self, endpoint: str) -> Any:
        keys = clients.Credentials(os.environ.get("INTEROP_ACCESS_KEY"), os.environ.get("INTEROP_SECRET_KEY"))
        return clients.ClientConfiguration(endpoint, keys, "", REQUEST_TIMEOUT_S)

    def _message(self, topic: str, fields: dict[str, Any]) -> Any:
        message = models.Message()
        message.topic, message.body = topic, fields["body"].encode()
        if "tag" in fields:
            message.tag = fields["tag"]
        for key in fields.get("keys", ()):
            message.keys = key  # its setter adds one
        if "group" in fields:
            message.message_group = fields["group"]
        if "delay_s" in fields:
            message.delivery_timestamp = int(time.time()) + fields["delay_s"]
        for name, value in fields.get("properties", {}).items():
            message.add_property(name, value)
        return message


def main() -> None:
    agent = Agent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the client prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        operation: Callable[..., Any] = getattr(agent, request.pop("operation"))
        try:
            answer: dict[str, Any] = {"result": operation(**request)}
        except Exception as error:  # noqa: BLE001  # goes to the test
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # the client's threads do not end


main()
