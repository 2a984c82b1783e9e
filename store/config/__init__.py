"""Config: the settings of a store, its clock, and the times to live of topics."""

from thermocline.store.config.store_clock import StoreClock
from thermocline.store.config.store_config import (
    LARGE_FOLDERS,
    STORE_NAMES,
    FlushDiskType,
    SlaveStoreConfig,
    StoreConfig,
)
from thermocline.store.config.ttl import visible_from_ms

__all__ = [
    "LARGE_FOLDERS",
    "STORE_NAMES",
    "FlushDiskType",
    "SlaveStoreConfig",
    "StoreClock",
    "StoreConfig",
    "visible_from_ms",
]
