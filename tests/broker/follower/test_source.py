"""Settings of a broker that serves the cold tier of another one."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from thermocline.broker.follower.source import NAME_SUFFIX, Source, make_read_only
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import PERM_READ
from thermocline.store.config import FlushDiskType, StoreConfig
from thermocline.tiered.budgets import TierConfig


def settings_of(broker: BrokerConfig) -> BrokerSettings:
    store = StoreConfig(root_path="/store", flush_disk_type=FlushDiskType.SYNC_FLUSH)
    return BrokerSettings(broker=broker, store=store, tier=TierConfig(), clock=Clock(0))


@pytest.mark.parametrize(("name", "shown"), [("broker-a", f"broker-a{NAME_SUFFIX}"), ("history", "history")])
def test_a_read_only_broker_takes_and_makes_nothing(name: str, shown: str) -> None:
    """It also has a name of its own, so that the routes of the broker whose history it serves stay as they are."""
    source = Source(cluster_name="main", broker_name="broker-a")
    settings = settings_of(BrokerConfig(cluster_name="main", broker_name=name, auto_create_topic=True))
    make_read_only(settings, source)
    broker = settings.broker
    assert (broker.broker_name, broker.permission) == (shown, PERM_READ)
    assert not broker.auto_create_topic
    assert not broker.timer_wheel
    assert settings.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
