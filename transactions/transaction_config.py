"""Settings of transactions, with Apache RocketMQ's defaults.

Source: common/BrokerConfig.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.remoting.errors import InvalidParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The coordinator's settings; replaced when settings change. Checked when made."""

    timeout_ms: int = 6_000
    """transactionTimeOut: before a half message is that old its producers are not asked."""
    check_max: int = 15
    """transactionCheckMax: how often they are asked before it is parked."""
    op_bytes_max: int = 4_096
    """transactionOpMsgMaxSize: an op message is written when its notes take that much."""

    def __post_init__(self) -> None:
        for name in ("timeout_ms", "check_max", "op_bytes_max"):
            if getattr(self, name) <= 0:
                raise InvalidParameterError("impossible transaction setting", name=name)
