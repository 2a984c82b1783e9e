"""Bodies about replicas.

Source: HARuntimeInfo.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from msgspec import field

from thermocline.remoting.bodies.body import Body
from thermocline.remoting.header_codec import Int, Long, PhysicalOffsetLong
from thermocline.remoting.offsets import LOG_START


class HAClientRuntimeInfo(Body, kw_only=True):
    """How a replica follows its master."""

    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_addr: str | None = None
    master_flush_offset: PhysicalOffsetLong = LOG_START
    max_offset: PhysicalOffsetLong = LOG_START
    transferred_byte_in_second: Long = 0


class HAConnectionRuntimeInfo(Body, kw_only=True):
    """How far one replica is, as its master sees it."""

    addr: str = ""
    diff: Long = 0
    in_sync: bool = False
    slave_ack_offset: PhysicalOffsetLong = LOG_START
    transfer_from_where: Long = 0
    transferred_byte_in_second: Long = 0


class HARuntimeInfo(Body, kw_only=True):
    """The answer to GET_BROKER_HA_STATUS."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    in_sync_slave_nums: Int = 0
    master: bool = False
    master_commit_log_max_offset: PhysicalOffsetLong = LOG_START
