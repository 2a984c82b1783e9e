"""Replication settings: the values of RocketMQ's settings `ha...` that both ends of a connection use."""

from __future__ import annotations

import msgspec


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults are RocketMQ's."""

    transfer_bytes_max: int = 32_768
    """haTransferBatchSize: bytes of one transfer."""
    heartbeat_interval_ms: int = 5_000
    """haSendHeartbeatInterval: a heartbeat after so long without a transfer, a report after so long without one."""
    silence_ms_max: int = 20_000
    """haHousekeepingInterval: a connection is closed when nothing has come for so long."""
    bytes_per_second_max: int = 0
    """maxHaTransferByteInSecond, to each slave, with haFlowControlEnable; 0: no limit."""
