"""Settings of a slave."""

from __future__ import annotations

from typing import Any

from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.replica_settings import BrokerRole


def slave_config(**settings: Any) -> BrokerConfig:
    """Of broker id 1, on loopback."""
    return BrokerConfig(listen_host="127.0.0.1", broker_role=BrokerRole.SLAVE, broker_id=1, **settings)
