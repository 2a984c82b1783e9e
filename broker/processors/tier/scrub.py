"""Scrub requests of the `thermocline` command; RocketMQ does not have them. Codes: remoting/private_requests.py.

    90120 TIER_SCRUB         deep?, heal?, afresh?, budgetBytes?, bytesPerSecond?   begins one; answered at once
    90121 TIER_SCRUB_STATE                                                          how far it is, or what it found

Answers are JSON. All of it happens in the tier process (broker/tier_process/tier_scrub.py).
"""

from collections.abc import Mapping

import msgspec

from thermocline.broker.helpers import TIER_ROLE, HelperHub, HelperRequestCode, ScrubRequest, ScrubState, decode_body
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.private_requests import PrivateRequestCode, ScrubHeader

TIMEOUT_MS = 10_000


class ScrubProcessor:
    """Serves the scrub requests."""

    def __init__(self, hub: HelperHub) -> None:
        self._hub = hub

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {PrivateRequestCode.TIER_SCRUB: self.start, PrivateRequestCode.TIER_SCRUB_STATE: self.state}

    async def start(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90120."""
        header = command.header(ScrubHeader)
        for name, value in (("budgetBytes", header.budget_bytes), ("bytesPerSecond", header.bytes_per_second)):
            if value is not None and value <= 0:
                raise InvalidParameterError("a budget is more than nothing", parameter=name, value=value)
        request = ScrubRequest(
            deep=header.deep,
            heal=header.heal,
            afresh=header.afresh,
            budget_bytes=header.budget_bytes,
            bytes_per_second=header.bytes_per_second,
        )
        response = await self._hub.ask(TIER_ROLE, HelperRequestCode.SCRUB, request, timeout_ms=TIMEOUT_MS)
        return _answer(command, decode_body(response.body, ScrubState))

    async def state(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90121."""
        response = await self._hub.ask(TIER_ROLE, HelperRequestCode.SCRUB_STATE, _Nothing(), timeout_ms=TIMEOUT_MS)
        return _answer(command, decode_body(response.body, ScrubState))


class _Nothing(msgspec.Struct, array_like=True, frozen=True):
    """The body of a question without any parameter."""


def _answer(command: RemotingCommand, state: ScrubState) -> RemotingCommand:
    return RemotingCommand.response(command, body=msgspec.json.encode(state))
