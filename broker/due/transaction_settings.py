"""Transaction settings: the coordinator's configuration from the broker's settings."""

from thermocline.broker.settings import BrokerConfig
from thermocline.transactions.transaction_config import TransactionConfig


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """The configuration from the present settings."""
    return TransactionConfig(
        timeout_ms=config.transaction_timeout_ms,
        check_max=config.transaction_check_max,
        op_bytes_max=config.transaction_op_bytes_max,
    )
