"""The cold tier: what only a Thermocline broker serves; another broker is UnsupportedRequestError.

Answers are the JSON objects of the table in remoting/private_requests.py, one a broker. Every method raises
`PartialResultError` when some brokers failed; its `result` has the answers of the others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.busy_retry import retry_while_busy
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.private_requests import (
    PrivateRequestCode,
    ScrubHeader,
    TierCostHeader,
    TierHeader,
    TierPurgeHeader,
)

__all__ = ["TierAdministration"]

SEAL_TIMEOUT_MS = 600_000
REPORT_TIMEOUT_MS = 30_000
FORECAST_TIMEOUT_MS = 60_000


class TierAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def tier_status(self, topic: str | None = None) -> dict[str, dict[str, Any]]:
        """Return, by broker name, each queue's local and cold range, what waits, and how the helpers are."""
        return await self._ask_tiers(PrivateRequestCode.TIER_STATUS, topic=topic)

    async def tier_seal(self, topic: str | None = None) -> dict[str, dict[str, Any]]:
        """Move what is stored so far, of a topic or of all, to the cold tier; return when it is committed there."""
        return await self._ask_tiers(PrivateRequestCode.TIER_SEAL, topic=topic, timeout_ms=SEAL_TIMEOUT_MS)

    async def tier_explain(self, topic: str, *, queue_id: int | None = None) -> dict[str, dict[str, Any]]:
        """Return, by broker name, where each range of a topic is, what happens to it next and why."""
        return await self._ask_tiers(PrivateRequestCode.TIER_EXPLAIN, topic=topic, queue_id=queue_id)

    async def tier_cost(self, topic: str | None = None) -> dict[str, dict[str, Any]]:
        """Return, by broker name, what has been asked of the object store, by purpose and topic, and what it holds."""
        masters = await self._masters() if topic is None else await self._topic_masters(topic)
        header = TierCostHeader(topic=topic)
        return await self._ask_masters(PrivateRequestCode.TIER_COST, masters, header, FORECAST_TIMEOUT_MS)

    async def forecast_tier_cost(
        self,
        topic: str | None = None,
        *,
        ttl_ms: int | None = None,
        segment_bytes: int | None = None,
        seal_age_ms: int | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Return the same with `forecast`: what it would be with these settings, and the traffic of the last hour.

        None leaves a setting as it is. The time to live, 0 for ever, is that of `topic`, or of all topics.
        """
        header = TierCostHeader(
            topic=topic,
            forecast=True,
            ttl_ms=checked_ttl_ms(ttl_ms),
            segment_bytes=segment_bytes,
            seal_age_ms=seal_age_ms,
        )
        masters = await self._masters() if topic is None else await self._topic_masters(topic)
        return await self._ask_masters(PrivateRequestCode.TIER_COST, masters, header, FORECAST_TIMEOUT_MS)

    async def tier_purge(self, topic: str) -> dict[str, dict[str, Any]]:
        """Delete from the bucket now what has expired of a topic, or is left of a deleted one; return what was done.

        Readers of older versions of the catalog lose what they read, unless they pinned it.
        """
        masters, header = await self._masters(), TierPurgeHeader(topic=topic)
        return await self._ask_masters(PrivateRequestCode.TIER_PURGE, masters, header, SEAL_TIMEOUT_MS)

    async def start_tier_scrub(
        self,
        *,
        deep: bool = False,
        heal: bool = False,
        afresh: bool = False,
        budget_bytes: int | None = None,
        bytes_per_second: int | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Let every broker begin to check its cold tier, and with `heal` to repair it; by broker name, that it has.

        `deep` reads every byte, at most `budget_bytes` of segments: the next one goes on there, or `afresh`.
        """
        header = ScrubHeader(
            deep=deep, heal=heal, afresh=afresh, budget_bytes=budget_bytes, bytes_per_second=bytes_per_second
        )
        return await self._ask_masters(PrivateRequestCode.TIER_SCRUB, await self._masters(), header, REPORT_TIMEOUT_MS)

    async def tier_scrub_state(self) -> dict[str, dict[str, Any]]:
        """Return, by broker name, how far a scrub has come, or what the last one found."""
        masters = await self._masters()
        return await self._ask_masters(PrivateRequestCode.TIER_SCRUB_STATE, masters, Header(), REPORT_TIMEOUT_MS)

    async def _ask_tiers(
        self,
        code: PrivateRequestCode,
        *,
        topic: str | None,
        queue_id: int | None = None,
        timeout_ms: int = REPORT_TIMEOUT_MS,
    ) -> dict[str, dict[str, Any]]:
        masters = await self._masters() if topic is None else await self._topic_masters(topic)
        return await self._ask_masters(code, masters, TierHeader(topic=topic, queue_id=queue_id), timeout_ms)

    async def _ask_masters(
        self, code: PrivateRequestCode, masters: list[BrokerAddress], header: Header, timeout_ms: int
    ) -> dict[str, dict[str, Any]]:
        answers = await self._ask_each(masters, lambda master: self._tier_answer(master, code, header, timeout_ms))
        return answers.whole(answers.by_name())

    async def _tier_answer(
        self, master: BrokerAddress, code: PrivateRequestCode, header: Header, timeout_ms: int
    ) -> dict[str, Any]:
        """One broker's answer, which may take `timeout_ms` as long as the broker is alive.

        A broker of which the tier process is not there yet is asked again for `request_timeout_ms`; but not to begin
        a scrub, as another one may run for hours.
        """

        async def ask(left_ms: int) -> RemotingCommand:
            return await self._running().call(master.address, code, header, timeout_ms=timeout_ms)

        busy_ms = 0 if code is PrivateRequestCode.TIER_SCRUB else self.request_timeout_ms
        answer = await self._while_alive(master.address, retry_while_busy(ask, timeout_ms=busy_ms))
        return msgspec.json.decode(answer.body, type=dict[str, Any])


def checked_ttl_ms(ttl_ms: int | None) -> int | None:
    """A time to live as it is sent; InvalidRequestError unless it can be one."""
    if ttl_ms is not None and ttl_ms < 0:
        raise InvalidRequestError("a time to live is not negative", ttl_ms=ttl_ms)
    return ttl_ms
