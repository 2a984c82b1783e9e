"""Cold read limits: how much of history each consumer group reads, and may read.

Brokers count, and hold a group back, when their setting `coldDataFlowControlEnable` is true. Apache RocketMQ serves the
same requests; there, "cold" is what is not in the page cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import format_config_text
from thermocline.remoting.topic_validation import check_group

__all__ = ["ColdReadLimits", "ColdReads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdReads:
    """One group's reads of history at one broker."""

    group: str
    read_bytes: int
    """In the present span of five seconds."""
    limit_bytes: int | None
    """For each such span; None: the broker's own for all groups."""
    last_read_timestamp_ms: int
    """0: none since the broker started."""


class _Reads(msgspec.Struct, rename="camel"):
    cold_acc: int = 0
    last_cold_read_time_mills: int = 0


class _Report(msgspec.Struct, rename="camel"):
    runtime_table: dict[str, _Reads] = {}
    config_table: dict[str, int] = {}


class ColdReadLimits(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def cold_reads(self, broker: str) -> list[ColdReads]:
        """Return what groups read of history at a broker (name or address), and groups with limits of their own.

        Raises:
            ObjectNotFoundError: No such broker.
            CorruptDataError: The answer is none.
        """

        async def ask(master: BrokerAddress) -> _Report:
            answer = await self._running().call(master.address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
            try:
                return msgspec.json.decode(answer.body, type=_Report, strict=False)
            except msgspec.MsgspecError as error:
                raise CorruptDataError("no report on cold reads", address=master.address) from error

        report = await self._ask_one(broker, ask)
        return [
            ColdReads(
                group=group,
                read_bytes=reads.cold_acc,
                limit_bytes=report.config_table.get(group),
                last_read_timestamp_ms=reads.last_cold_read_time_mills,
            )
            for group in sorted(report.runtime_table.keys() | report.config_table.keys())
            for reads in [report.runtime_table.get(group, _Reads())]
        ]

    async def set_cold_read_limit(self, broker: str, group: str, limit_bytes: int | None) -> None:
        """Let a group read so much of history in five seconds at a broker; None: as the broker lets all groups.

        Raises:
            ObjectNotFoundError: No such broker.
            InvalidRequestError: The group's name or the limit is impossible.
        """
        check_group(group)
        if limit_bytes is None:
            code, body = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, group
        elif limit_bytes > 0:
            code, body = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, format_config_text({group: str(limit_bytes)})
        else:
            raise InvalidRequestError("a limit is greater than zero", limit_bytes=limit_bytes)

        async def ask(master: BrokerAddress) -> None:
            await self._running().call(master.address, code, body=body.encode())

        await self._ask_one(broker, ask)
