"""Acting POP requests: served by a slave while it stands in for its master, refused at other times.

    200050 POP_MESSAGE    200052 PEEK_MESSAGE                                        while messages are popped here
    200051 ACK_MESSAGE    200151 BATCH_ACK_MESSAGE    200053 CHANGE_MESSAGE_INVISIBLETIME
                                                       then, and while messages are in flight that were popped here

RocketMQ's slave serves them at any time; a check point that no master takes stays in its memory.
Owner: the hot process's event loop.
Source: PopMessageProcessor.java, AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.pops import EscapedPops
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Answer, Connection, Handler
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.request_code import RequestCode

POPS = (RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE)
ACKNOWLEDGEMENTS = (
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)


class ActingPopRequests:
    """See the module's header. Stands before what refuses them at a slave."""

    def __init__(self, escaped: EscapedPops, *, served_by: Mapping[int, Handler]) -> None:
        """`served_by`: request code -> the method of this broker."""
        self._escaped = escaped
        self._served_by = served_by

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {**dict.fromkeys(POPS, self.pop), **dict.fromkeys(ACKNOWLEDGEMENTS, self.acknowledge)}

    def pop(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Serve it, if this broker stands in."""
        if not self._escaped.is_open:
            raise BrokerBusyError("a slave gives out no messages by POP while it does not stand in for its master")
        return self._served_by[command.code](connection, command)

    def acknowledge(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Serve it, if there may be something to acknowledge."""
        if not self._escaped.is_open and not len(self._escaped):
            raise BrokerBusyError("a slave has no popped messages while it does not stand in for its master")
        return self._served_by[command.code](connection, command)
