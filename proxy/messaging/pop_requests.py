"""POP over the remoting protocol: the request, and what its answer brought.

For what pops by the proxy's own connection to a broker, and by that of one client.
Source: PopMessageProcessor.java, MQClientAPIImpl.java (processPopResponse), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.client.answer import check_answer
from thermocline.client.consumer.popped_message import read_popped
from thermocline.proxy.messaging.handles import ProxyHandle
from thermocline.proxy.messaging.messaging import HeldMessage, PopOutcome, PopStatus
from thermocline.remoting.bodies import SubscriptionData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers import PopMessageRequestHeader, PopMessageResponseHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

__all__ = ["ANY_QUEUE", "pop_outcome", "pop_request"]

ANY_QUEUE = -1
_NOTHING_CODES = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})


def pop_request(
    broker_name: str,
    subscription: SubscriptionData,
    *,
    group: str,
    count_max: int,
    invisible_ms: int,
    await_ms: int,
    init_mode: int,
    now_ms: int,
    in_order: bool = False,
    attempt_id: str | None = None,
    queue_id: int = ANY_QUEUE,
) -> RemotingCommand:
    """A POP of a queue or of any, with messages that come back, of whatever queue; see `Messaging.pop`."""
    header = PopMessageRequestHeader(
        consumer_group=group,
        topic=subscription.topic,
        queue_id=queue_id,
        max_msg_nums=count_max,
        invisible_time=invisible_ms,
        poll_time=await_ms,
        born_time=now_ms,
        init_mode=init_mode,
        exp_type=subscription.expression_type,
        exp=subscription.sub_string,
        order=in_order,
        attempt_id=attempt_id,
        broker_name=broker_name,
    )
    return RemotingCommand.request(RequestCode.POP_MESSAGE, header)


def pop_outcome(answer: RemotingCommand, *, topic: str, group: str, broker_name: str) -> PopOutcome:
    """What a broker answered.

    Raises:
        MQError: It refused.
    """
    if answer.code == ResponseCode.POLLING_FULL:
        return PopOutcome(status=PopStatus.POLLING_FULL)
    if answer.code in _NOTHING_CODES:
        return PopOutcome(status=PopStatus.NOTHING)
    check_answer(answer, address=broker_name)
    header = answer.header(PopMessageResponseHeader)
    popped = read_popped(answer.body, header, topic=topic, group=group, broker_name=broker_name)
    messages = [
        HeldMessage(message, ProxyHandle(receipt=message.receipt, physical_offset=int(message.physical_offset)))
        for message in popped
    ]
    return PopOutcome(status=PopStatus.FOUND if messages else PopStatus.NOTHING, messages=messages)
