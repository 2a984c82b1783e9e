"""Running info: how a consumer is doing, for requests through the broker (GET_CONSUMER_RUNNING_INFO 307).

Every kind of consumer tells its settings, subscriptions and queues; rates too where the client consumes by itself.
Source: client/impl/ClientRemotingProcessor.java and consumerRunningInfo of the consumers, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable, Mapping

from thermocline.client.message_queue import MessageQueue, to_wire
from thermocline.client.options import ClientOptions
from thermocline.remoting.bodies import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo, SubscriptionData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.headers import GetConsumerRunningInfoRequestHeader

__all__ = ["answer_running_info", "check_group"]

CLIENT_VERSION = "V5_5_0"


def answer_running_info(
    command: RemotingCommand,
    options: ClientOptions,
    *,
    group: str,
    consume_type: str,
    start_timestamp_ms: int,
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueueInfo],
    properties: Mapping[str, str] | None = None,
    statuses: Mapping[str, ConsumeStatus] | None = None,
) -> RemotingCommand:
    """Answer the request; InvalidRequestError when it is about another group."""
    header = command.header(GetConsumerRunningInfoRequestHeader)
    check_group(header.consumer_group, group)
    namesrv = options.namesrv
    body = ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": namesrv if isinstance(namesrv, str) else ";".join(namesrv),
            "PROP_CONSUME_TYPE": consume_type,
            "PROP_CONSUMER_START_TIMESTAMP": str(start_timestamp_ms),
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            **(properties or {}),
        },
        subscription_set=list(subscriptions),
        mq_table={to_wire(queue): info for queue, info in sorted(queues.items())},
        status_table=dict(statuses or {}),
        jstack=_stacks() if header.jstack_enable else None,
    )
    return RemotingCommand.response(command, body=body.encode())


def check_group(asked: str, group: str) -> None:
    """InvalidRequestError when a request is about another group than this consumer's."""
    if asked != group:
        raise InvalidRequestError("this client is not in that group", group=asked)


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
