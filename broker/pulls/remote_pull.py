"""Remote pull: reads an old item of a logic queue on the broker that has it, on behalf of a client of this one.

The peer answers at once, from its log or from its cold tier: it neither lets the pull wait nor takes an offset from it.
Source: broker/processor/PullMessageProcessor.java (rewriteRequestForStaticTopic), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.broker.cluster import PeerBrokers
from thermocline.broker.pulls.pull_reply import PullAnswer
from thermocline.broker.pulls.pull_request import PullRequest
from thermocline.broker.pulls.static_pull import StaticPull
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ResponseError
from thermocline.remoting.headers.read import PullMessageResponseHeader
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.response_code import ResponseCode

TIMEOUT_MS = 15_000
"""Above `forwardTimeout`: a read of cold history takes as long as the object store does. Clients wait for 30 s."""

_PULL_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class RemotePull:
    """Pulls from other brokers."""

    def __init__(self, peers: PeerBrokers) -> None:
        self._peers = peers

    async def pull(self, request: PullRequest, static: StaticPull) -> PullAnswer:
        """The answer of the item's broker, in its own offsets; the request's header has been rewritten for it.

        Raises:
            ResponseError: It refuses the pull; with its code.
            MQError: It does not answer.
        """
        header = request.header
        header.logical = False
        header.broker_name = static.broker_name
        header.sys_flag &= ~(sys_flags.PULL_SUSPEND | sys_flags.PULL_COMMIT_OFFSET)
        command = RemotingCommand.request(request.code, header)
        answer = await self._peers.call(static.broker_name, command, timeout_ms=TIMEOUT_MS)
        if answer.code not in _PULL_ANSWERS:
            raise ResponseError(code=answer.code, remark=answer.remark)
        fields = answer.header(PullMessageResponseHeader)
        body = bytes(answer.body)
        found = PullAnswer(
            answer.code,
            answer.remark or "",
            next_offset=fields.next_begin_offset,
            min_offset=fields.min_offset,
            max_offset=fields.max_offset,
            buffers=(body,) if body else (),
            size_bytes=len(body),
        )
        found.topic_sys_flag = fields.topic_sys_flag or 0
        found.group_sys_flag = fields.group_sys_flag or 0
        return found
