"""Wrappers around an object store, each an object store itself: retrying, metering, throttling, bounding,
watching for outages, fault injection."""

from thermocline.tiered.wrappers.bounding import BoundingObjectStore
from thermocline.tiered.wrappers.fault_injection import Fault, FaultInjectingObjectStore, ProcessCrash
from thermocline.tiered.wrappers.metering import MeteringObjectStore, StoreCounters
from thermocline.tiered.wrappers.outage import OutageWatch, OutageWatchingObjectStore
from thermocline.tiered.wrappers.retrying import RetryingObjectStore, RetryPolicy
from thermocline.tiered.wrappers.store_history import StoreHistory
from thermocline.tiered.wrappers.throttling import (
    StoreLimits,
    StoreRates,
    ThrottlingObjectStore,
    monotonic_ms,
    with_read_limit,
)
from thermocline.tiered.wrappers.wrapping import StoreCall, Verb

__all__ = [
    "BoundingObjectStore",
    "Fault",
    "FaultInjectingObjectStore",
    "MeteringObjectStore",
    "OutageWatch",
    "OutageWatchingObjectStore",
    "ProcessCrash",
    "RetryPolicy",
    "RetryingObjectStore",
    "StoreCall",
    "StoreCounters",
    "StoreHistory",
    "StoreLimits",
    "StoreRates",
    "ThrottlingObjectStore",
    "Verb",
    "monotonic_ms",
    "with_read_limit",
]
