"""Queue locks over real sockets."""

from pathlib import Path

from tests.broker.control_broker import control_broker
from thermocline.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue


async def test_queues_are_locked_for_one_client(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        queues = [MessageQueue(topic="T", broker_name="broker-a", queue_id=queue_id) for queue_id in range(2)]
        one = LockBatchRequestBody(client_id="c1", consumer_group="G", mq_set=queues)
        two = LockBatchRequestBody(client_id="c2", consumer_group="G", mq_set=queues)
        locked = LockBatchResponseBody.decode((await broker.ask(41, body=one.encode())).body)
        assert set(locked.lock_ok_mq_set) == set(queues)
        locked = LockBatchResponseBody.decode((await broker.ask(41, body=two.encode())).body)
        assert locked.lock_ok_mq_set == []
        assert (await broker.ask(42, body=one.encode())).code == 0
        locked = LockBatchResponseBody.decode((await broker.ask(41, body=two.encode())).body)
        assert set(locked.lock_ok_mq_set) == set(queues)
