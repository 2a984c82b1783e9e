"""Cost requests of the `thermocline` command; RocketMQ does not have them. Codes: remoting/private_requests.py.

    90140 TIER_COST    topic?, forecast?, ttlMs?, segmentBytes?, sealAgeMs?    the cold tier's requests to the
                       object store, counted and forecast for other settings

The answer is JSON. All of it comes from the tier process (broker/tier_process/tier_account.py).
"""

from collections.abc import Mapping

import msgspec

from thermocline.broker.helpers import TIER_ROLE, CostReply, CostRequest, HelperHub, HelperRequestCode, decode_body
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.tables import TopicTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidParameterError, TopicNotFoundError
from thermocline.remoting.private_requests import PrivateRequestCode, TierCostHeader

TIMEOUT_MS = 60_000


class CostProcessor:
    """Serves the cost requests."""

    def __init__(self, *, settings: BrokerSettings, topics: TopicTable, hub: HelperHub) -> None:
        self._settings = settings
        self._topics = topics
        self._hub = hub

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {PrivateRequestCode.TIER_COST: self.cost}

    async def cost(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90140."""
        header = command.header(TierCostHeader)
        if header.topic is not None and self._topics.get(header.topic) is None:
            raise TopicNotFoundError("no such topic", topic=header.topic)
        tier = self._settings.tier
        minimums = {
            "ttlMs": (header.ttl_ms, 0),
            "segmentBytes": (header.segment_bytes, tier.frame_bytes),
            "sealAgeMs": (header.seal_age_ms, tier.account_interval_ms),
        }
        for name, (value, minimum) in minimums.items():
            if value is not None and value < minimum:
                raise InvalidParameterError("too small to forecast", parameter=name, value=value, minimum=minimum)
        request = CostRequest(
            topic=header.topic,
            is_forecast=bool(header.forecast),
            ttl_ms=header.ttl_ms,
            segment_bytes=header.segment_bytes,
            seal_age_ms=header.seal_age_ms,
        )
        response = await self._hub.ask(TIER_ROLE, HelperRequestCode.TIER_COST, request, timeout_ms=TIMEOUT_MS)
        return RemotingCommand.response(command, body=msgspec.json.encode(decode_body(response.body, CostReply)))
