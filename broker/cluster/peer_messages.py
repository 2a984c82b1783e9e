"""Peer messages: reads one message of another broker name, from its master or from the slave that stands in for it.

    PULL_MESSAGE 11 of one message, without a commit; every message matches

    found at the offset                      the message
    the broker goes on behind the offset     it is not there any more, nor when the topic is not
    anything else, and no answer             an error: the same read may be repeated

Owner: the hot process's event loop.
Source: broker/failover/EscapeBridge.java (getMessageFromRemoteAsync), Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.broker.cluster.peer_brokers import PeerBrokers
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ResponseError
from thermocline.remoting.headers.read import PullMessageRequestHeader, PullMessageResponseHeader
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TIMEOUT_MS = 10_000
PASSED = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


async def read_peer_message(
    peers: PeerBrokers, broker_name: str, topic: str, queue_id: int, offset: QueueOffset, *, group: str
) -> MessageRecord | None:
    """The message for a group; None when it is not there any more. Cancelling is safe.

    Raises:
        MQError: The broker cannot tell now.
    """
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=sys_flags.PULL_SUBSCRIPTION,
        subscription="*",
    )
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    answer = await peers.call(broker_name, command, timeout_ms=TIMEOUT_MS, or_slave=True)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code == ResponseCode.SUCCESS:
        record = next(iter(iterate_records(answer.body)), None)
        if record is not None and record.queue_offset == offset:
            return record
        if record is not None and record.queue_offset > offset:
            return None
    elif answer.code in PASSED and answer.header(PullMessageResponseHeader).next_begin_offset > offset:
        return None
    raise ResponseError(answer.remark or "no such message yet", code=answer.code, broker=broker_name)
