"""What brokers ask of a push consumer: where are you, how are you, go there, consume this."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.listener import ConsumeContext, ConsumeResult
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.push_consumer import PushConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.testing import FakeBroker
from thermocline.remoting import bodies
from thermocline.remoting.bodies import ConsumeMessageDirectlyResult, GetConsumerStatusBody, ResetOffsetBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError, MQError, UnsupportedRequestError
from thermocline.remoting.request_code import RequestCode

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)


class Running:
    """A consumer of one queue that holds ten messages, and tools to look at it."""

    def __init__(self, broker: FakeBroker, producer: Producer, admin: AdminClient, consumer: PushConsumer) -> None:
        self.broker, self.producer, self.admin, self.consumer = broker, producer, admin, consumer
        self.offsets: list[int] = []
        self.result: ConsumeResult | Exception | None = None

    def listener(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        self.offsets += [message.queue_offset for message in messages]
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def ask(self, code: int, *, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """Ask the consumer as a broker would, on the consumer's own loop."""
        command = RemotingCommand.request(code, ext_fields=fields, body=body)

        async def ask() -> RemotingCommand:
            answer = self.consumer._inner.answer(command)
            if not isinstance(answer, RemotingCommand | None):
                answer = await answer
            return answer or RemotingCommand.response(command)

        return self.consumer._loop.run(ask())


@pytest.fixture
def running() -> Iterator[Running]:
    with (
        FakeBroker() as broker,
        Producer(namesrv=broker.namesrv_address) as producer,
        AdminClient(namesrv=broker.namesrv_address) as admin,
    ):
        broker.create_topic("orders", queue_nums=1)
        producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])
        consumer = PushConsumer(
            namesrv=broker.namesrv_address,
            group="billing",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            persist_consumer_offset_interval_ms=20,
        )
        running = Running(broker, producer, admin, consumer)
        consumer.subscribe("orders")
        consumer.register_listener(running.listener)
        with consumer:
            broker.wait_until(lambda: broker.committed_offset("billing", "orders", 0) == 10)
            yield running


def test_status_tells_the_offset_of_every_queue(running: Running) -> None:
    answer = running.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields={"topic": "orders", "group": "billing"})
    table = GetConsumerStatusBody.decode(answer.body).message_queue_table
    assert table == {bodies.MessageQueue(topic="orders", broker_name="broker-a", queue_id=0): 10}


def test_running_info_tells_queues_rates_and_stacks(running: Running) -> None:
    info = running.admin.consumer_running_info("billing", running.consumer.client_id, with_stacks=True)
    assert {(queue.topic, queue.queue_id): one.commit_offset for queue, one in info.mq_table.items()} == {
        ("orders", 0): 10,
        ("%RETRY%billing", 0): 0,
    }
    assert info.status_table["orders"].consume_ok_tps > 0
    assert {one.topic for one in info.subscription_set} == {"orders", "%RETRY%billing"}
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert "thermocline consumer billing" in (info.jstack or "")


def test_another_groups_question_is_refused(running: Running) -> None:
    with pytest.raises(InvalidRequestError):
        running.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields={"topic": "orders", "group": "other"})
    with pytest.raises(UnsupportedRequestError):
        running.ask(RequestCode.CHECK_TRANSACTION_STATE, fields={})


def test_a_pushed_reset_moves_the_queue(running: Running) -> None:
    table = {bodies.MessageQueue(topic="orders", broker_name="broker-a", queue_id=0): 4}
    running.offsets.clear()
    running.ask(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        fields={"topic": "orders", "group": "billing", "timestamp": "0"},
        body=ResetOffsetBody(offset_table=table).encode(),
    )
    running.broker.wait_until(lambda: sorted(running.offsets) == [4, 5, 6, 7, 8, 9])


def test_a_reset_at_the_broker_moves_a_running_consumer(running: Running) -> None:
    running.offsets.clear()
    assert running.admin.reset_offsets("billing", "orders", timestamp_ms=0) == {QUEUE: 0}
    running.broker.wait_until(lambda: sorted(running.offsets) == list(range(10)))
    running.broker.wait_until(lambda: running.broker.committed_offset("billing", "orders", 0) == 10)
    running.admin.reset_offset("billing", QUEUE, 8)
    running.broker.wait_until(lambda: sorted(running.offsets)[-2:] == [9, 9])


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, "CR_SUCCESS"),
        (ConsumeResult.SUCCESS, "CR_SUCCESS"),
        (ConsumeResult.RECONSUME_LATER, "CR_LATER"),
        (RuntimeError("broken"), "CR_THROW_EXCEPTION"),
    ],
)
def test_a_message_is_consumed_on_demand(
    running: Running, result: ConsumeResult | Exception | None, expected: str
) -> None:
    running.result = result
    message = running.broker.messages("orders")[3]
    command = RemotingCommand.request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        ext_fields={
            "consumerGroup": "billing",
            "clientId": running.consumer.client_id,
            "msgId": message.offset_message_id,
        },
    )
    address = running.broker.broker_addresses["broker-a"]
    answer = ConsumeMessageDirectlyResult.decode(running.admin.invoke(address, command).body)
    assert answer.consume_result == expected
    assert running.offsets[-1] == 3


def test_a_member_that_is_not_there_is_an_error(running: Running) -> None:
    with pytest.raises(MQError):
        running.admin.consumer_running_info("billing", "missing")
