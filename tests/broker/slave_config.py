"""Settings of a slave, which no source of settings gives yet: a broker that is started by its settings is a master."""

from __future__ import annotations

from typing import Any

from thermocline.broker.settings.broker_config import BrokerConfig


def slave_config(**settings: Any) -> BrokerConfig:
    """Of broker id 1, on loopback."""
    config = BrokerConfig(listen_host="127.0.0.1", **settings)
    object.__setattr__(config, "broker_id", 1)
    return config
