"""Push consumers that POP serves, request by request.

Covers `proxy/messaging/pop_requests.py`, `proxy/remoting/pop_client.py`, `proxy/remoting/pull_answers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.proxy.proxy_under_test import make_topics, proxy_before
from tests.proxy.remoting.remoting_peer import GROUP, Client, client_of, heartbeat, send_fields
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy.remoting import push_by_pop
from thermocline.remoting.bit_set import decode_bit_set
from thermocline.remoting.bodies import (
    BatchAckMessageRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers import PullMessageResponseHeader
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

PUSH = {"consume_type": "CONSUME_PASSIVELY"}
QUEUE = {"consumerGroup": GROUP, "topic": "Normal", "queueId": 0, "bname": "broker-a"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


async def send(client: Client, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"%d" % number, **send_fields(n="broker-a"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def begin(client: Client, *, client_id: str = "one") -> None:
    """As a push consumer begins with a queue."""
    await client.heartbeat(client_id=client_id, **PUSH)
    await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE)


async def pull(
    client: Client,
    position: int,
    *,
    done: int | None = None,
    wait_ms: int = 0,
    queue: Mapping[str, object] = QUEUE,
) -> RemotingCommand:
    flags = (1 if done is not None else 0) | (2 if wait_ms else 0)
    return await client.ask(
        RequestCode.PULL_MESSAGE,
        **queue,
        queueOffset=position,
        maxMsgNums=32,
        sysFlag=flags,
        commitOffset=done or 0,
        suspendTimeoutMillis=wait_ms,
        subVersion=0,
    )


def records(answer: RemotingCommand) -> list[MessageRecord]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return list(iterate_records(answer.body))


def bodies(answer: RemotingCommand) -> list[int]:
    return [int(record.body) for record in records(answer)]


def acknowledged(broker: FakeBroker) -> list[int]:
    """The offsets, whether they came one by one or as a batch."""
    single = [int(request.fields["offset"]) for request in broker.requests(RequestCode.ACK_MESSAGE)]
    batches = [
        ack.start_offset + bit
        for request in broker.requests(RequestCode.BATCH_ACK_MESSAGE)
        for ack in BatchAckMessageRequestBody.decode(request.body).acks
        for bit in decode_bit_set(ack.bits)
    ]
    return sorted(single + batches)


async def test_a_pull_is_a_pop_and_an_offset_update_acknowledges(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 4)
        answer = await pull(client, 0)
        assert bodies(answer) == [0, 1, 2, 3]
        assert [record.queue_offset for record in records(answer)] == [0, 1, 2, 3]
        assert answer.header(PullMessageResponseHeader).next_begin_offset == 4
        assert not broker.requests(RequestCode.PULL_MESSAGE)
        assert (await pull(client, 4)).code == ResponseCode.PULL_NOT_FOUND
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=3)
        await until(lambda: len(acknowledged(broker)) == 3)
        assert acknowledged(broker) == [0, 1, 2]
        assert not broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)[1:], "only where the group begins"
        await pull(client, 4, done=4)
        await until(lambda: len(acknowledged(broker)) == 4)


async def test_two_clients_share_one_queue_and_take_all_queues(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as one, client_of(proxy) as two:
        await begin(one, client_id="one")
        await begin(two, client_id="two")
        for client, client_id in ((one, "one"), (two, "two")):
            answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP)
            assert GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list == [client_id]
        await send(one, 3)
        assert bodies(await pull(one, 0)) == [0, 1, 2]
        await send(one, 2, start=3)
        assert bodies(await pull(two, 0)) == [3, 4]


async def test_an_answer_that_was_lost_comes_again(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 2)
        assert bodies(await pull(client, 0)) == [0, 1]
        await pull(client, 0)
        changed = broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        await until(lambda: len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) == 2)
        assert all(request.fields["invisibleTime"] == "1000" for request in changed)
        assert not acknowledged(broker)


async def test_a_message_that_is_sent_back_waits_for_its_level(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 3)
        first, second, _ = records(await pull(client, 0))
        for record, level in ((first, 0), (second, 4)):
            answer = await send_back(client, record, delay_level=level)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        changed = broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        assert [request.fields["invisibleTime"] for request in changed] == ["10000", "30000"]
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=3)
        await until(lambda: acknowledged(broker))
        assert acknowledged(broker) == [2], "what was sent back is not done with"


async def send_back(
    client: Client, record: MessageRecord, *, delay_level: int = 0, tries_max: int = 16
) -> RemotingCommand:
    return await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group=GROUP,
        offset=record.physical_offset,
        delayLevel=delay_level,
        originTopic="Normal",
        maxReconsumeTimes=tries_max,
        bname="broker-a",
    )


async def test_a_message_tried_often_enough_is_a_dead_letter(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 1)
        (record,) = records(await pull(client, 0))
        assert (await send_back(client, record, tries_max=0)).code == ResponseCode.SUCCESS
        assert [message.body for message in broker.messages(f"%DLQ%{GROUP}")] == [b"0"]
        assert acknowledged(broker) == [0]


async def test_what_a_client_holds_is_given_back_when_it_goes(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy:
        async with client_of(proxy) as client:
            await begin(client)
            await send(client, 3)
            await pull(client, 0)
            await pull(client, 3, done=1)
        await until(lambda: len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) == 2)
        assert acknowledged(broker) == [0]
        assert proxy.server.remoting is not None
        assert proxy.server.remoting.pops is not None
        assert proxy.server.remoting.pops.held == 0


async def test_offset_updates_behind_the_goodbye_count(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 2)
        await pull(client, 0)
        await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="one", consumerGroup=GROUP)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=2)
        await until(lambda: len(acknowledged(broker)) == 2)
        assert not broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)


async def test_an_offset_update_before_the_first_pull_acknowledges_nothing(broker: FakeBroker) -> None:
    """A client that begins anew with a queue, as after a route without it, reports the group's offset as its own before
    it pulls. What it had before it never consumed: it dropped that with the queue."""
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 3)
        assert bodies(await pull(client, 0)) == [0, 1, 2]
        await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE)
        answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=3)
        assert answer.code == ResponseCode.SUCCESS
        await pull(client, 3)
        await until(lambda: len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) == 3)
        assert not acknowledged(broker)


async def test_a_group_begins_where_its_first_client_does(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await send(client, 5)
        await begin(client)
        answer = await pull(client, 3)
        assert bodies(answer) == [3, 4]
        assert [record.queue_offset for record in records(answer)] == [3, 4]


async def test_a_client_from_another_proxy_goes_on_at_its_position(broker: FakeBroker) -> None:
    """It does not ask for the group's offset again, and its positions are not the broker's."""
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await client.heartbeat(**PUSH)
        await send(client, 2)
        answer = await pull(client, 700)
        assert bodies(answer) == [0, 1]
        assert [record.queue_offset for record in records(answer)] == [700, 701]
        assert broker.committed_offset(GROUP, "Normal", 0) in (None, 2), "not what the client counts"


async def test_before_its_heartbeat_a_client_neither_pulls_nor_commits(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        assert (await pull(client, 700)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert (await pull(client, 700, done=600)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=700)
        assert broker.committed_offset(GROUP, "Normal", 0) is None


async def test_a_broker_that_does_not_answer_holds_up_no_acknowledgement_at_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push_by_pop, "BROKER_TIMEOUT_MS", 600_000)
    other = {**QUEUE, "bname": "broker-b"}
    with FakeBroker(broker_names=("broker-a", "broker-b"), auto_create_topics=False) as brokers:
        make_topics(brokers)
        async with proxy_before(brokers) as proxy, client_of(proxy) as client:
            await begin(client)
            await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **other)
            await send(client, push_by_pop.ACKS_MAX + 1)
            position = 0
            while position <= push_by_pop.ACKS_MAX:
                position += len(records(await pull(client, position)))
            await client.ask(RequestCode.SEND_MESSAGE_V2, b"0", **send_fields(n="broker-b"))
            assert bodies(await pull(client, 0, queue=other)) == [0]
            brokers.stay_silent(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, times=1_000, broker_name="broker-a")
            await pull(client, 0)  # which gives back all that it holds there
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **other, commitOffset=1)
            await until(lambda: brokers.requests(RequestCode.ACK_MESSAGE, broker_name="broker-b"))


async def test_names_that_no_broker_takes_are_not_kept(broker: FakeBroker) -> None:
    """Any client may send them, each as long as a frame."""
    group, topic = "g" * 121, "t" * 513
    consumer = ConsumerData(group_name=group, consume_type="CONSUME_PASSIVELY")
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await client.ask(RequestCode.HEART_BEAT, HeartbeatData(client_id="one", consumer_data_set=[consumer]).encode())
        place = MessageQueue(topic="Normal", broker_name="broker-a", queue_id=0)
        lock = LockBatchRequestBody(client_id="one", consumer_group=group, mq_set=[place])
        await client.ask(RequestCode.LOCK_BATCH_MQ, lock.encode())
        await begin(client)
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **{**QUEUE, "topic": topic})
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert proxy.server.remoting is not None
        pops = proxy.server.remoting.pops
        assert pops is not None
        assert not pops._order_marks
        (kept,) = pops._clients.values()
        assert [queue.topic for _, queue in kept._queues] == ["Normal"]


async def test_groups_that_lock_their_queues_are_pulled(broker: FakeBroker) -> None:
    place = MessageQueue(topic="Normal", broker_name="broker-a", queue_id=0)
    lock = LockBatchRequestBody(client_id="one", consumer_group=GROUP, mq_set=[place]).encode()
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await client.ask(RequestCode.LOCK_BATCH_MQ, lock)
        await until(lambda: any(each.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for each in client.asked))
        await send(client, 1)
        assert bodies(await pull(client, 0)) == [0]
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=1)
        assert broker.committed_offset(GROUP, "Normal", 0) == 1
        assert not broker.requests(RequestCode.POP_MESSAGE)


async def test_a_lock_at_the_broker_tells_a_proxy_that_did_not_see_it(broker: FakeBroker) -> None:
    place = MessageQueue(topic="Normal", broker_name="broker-a", queue_id=0)
    lock = LockBatchRequestBody(client_id="one", consumer_group=GROUP, mq_set=[place]).encode()
    async with proxy_before(broker) as first, client_of(first) as client:
        await begin(client)
        await client.ask(RequestCode.LOCK_BATCH_MQ, lock)
    async with proxy_before(broker) as second, client_of(second) as client:
        await client.heartbeat(**PUSH)
        await send(client, 1)
        assert bodies(await pull(client, 0)) == [0]
        assert not broker.requests(RequestCode.POP_MESSAGE)


@pytest.mark.parametrize("kind", ["broadcasting", "pull consumer", "signed", "setting"])
async def test_others_are_pulled(broker: FakeBroker, kind: str) -> None:
    settings = {"remoting_push_by_pop": False} if kind == "setting" else {}
    command = RemotingCommand.request(
        RequestCode.HEART_BEAT,
        body=heartbeat(
            consume_type="CONSUME_ACTIVELY" if kind == "pull consumer" else "CONSUME_PASSIVELY",
            message_model="BROADCASTING" if kind == "broadcasting" else "CLUSTERING",
        ),
    )
    if kind == "signed":
        Credentials(access_key="key", secret_key="secret").sign(command)
    async with proxy_before(broker, **settings) as proxy, client_of(proxy) as client:
        await client.ask(RequestCode.HEART_BEAT, bytes(command.body), **(command.ext_fields or {}))
        await send(client, 1)
        assert bodies(await pull(client, 0)) == [0]
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **QUEUE, commitOffset=1)
        assert broker.committed_offset(GROUP, "Normal", 0) == 1
        assert not broker.requests(RequestCode.POP_MESSAGE)


async def test_a_proxy_with_credentials_pops_for_nobody(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOCLINE_ACCESS_KEY", "proxy")
    monkeypatch.setenv("THERMOCLINE_SECRET_KEY", "secret-of-proxy")
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 1)
        assert bodies(await pull(client, 0)) == [0]
        assert not broker.requests(RequestCode.POP_MESSAGE)
        assert all("AccessKey" not in request.fields for request in broker.requests(RequestCode.PULL_MESSAGE))


async def test_a_client_gets_no_more_than_it_may_hold(broker: FakeBroker) -> None:
    async with proxy_before(broker, remoting_pop_queue_handles_max=3) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 5)
        assert bodies(await pull(client, 0)) == [0, 1, 2]
        assert (await pull(client, 3)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert bodies(await pull(client, 3, done=2)) == [3, 4]


async def test_a_client_that_is_late_gets_no_more_of_the_queue(broker: FakeBroker) -> None:
    async with proxy_before(broker, remoting_pop_invisible_ms=1_000) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 2)
        assert bodies(await pull(client, 0)) == [0, 1]
        while (answer := await pull(client, 2)).code == ResponseCode.PULL_NOT_FOUND:
            assert answer.header(PullMessageResponseHeader).next_begin_offset == 2
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY, "also when the broker has them for others again"
        assert (await pull(client, 2, done=2)).code != ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_a_waiting_pull_ends_before_the_client_is_late(broker: FakeBroker) -> None:
    async with proxy_before(broker, remoting_pop_invisible_ms=1_000) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 2)
        assert bodies(await pull(client, 0)) == [0, 1]
        answer = await pull(client, 2, wait_ms=15_000)
        assert answer.code != ResponseCode.SUCCESS, "the broker has both for others by then"
        polls = [int(request.fields["pollTime"]) for request in broker.requests(RequestCode.POP_MESSAGE)]
        assert polls[0] == 0 < polls[1] <= 1_000
        assert (await pull(client, 2, wait_ms=15_000)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_limits_of_queues_and_of_all_messages_refuse(broker: FakeBroker) -> None:
    limits = {"remoting_pop_queues_max": 1, "remoting_pop_handles_max": 1}
    async with proxy_before(broker, **limits) as proxy, client_of(proxy) as client:
        await begin(client)
        await send(client, 2)
        assert len(bodies(await pull(client, 0))) == 2
        assert (await pull(client, 2)).code == ResponseCode.SYSTEM_BUSY
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **{**QUEUE, "queueId": 1})
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert set(proxy.server.counts.totals) == {"remotingPopHandlesMax", "remotingPopQueuesPerClientMax"}
