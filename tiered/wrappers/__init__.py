"""Wrappers around an object store, each an object store itself: retrying, metering, throttling, bounding,
watching for outages, fault injection."""

from thermocline.tiered.wrappers.bounding import BoundingObjectStore
from thermocline.tiered.wrappers.fault_injection import Fault, FaultInjectingObjectStore, ProcessCrash
from thermocline.tiered.wrappers.ledger_copy import LedgerCopyStore
from thermocline.tiered.wrappers.metering import AccountsOf, MeteringObjectStore, StoreCounters
from thermocline.tiered.wrappers.outage import OutageWatch, OutageWatchingObjectStore
from thermocline.tiered.wrappers.retrying import RetryingObjectStore, RetryPolicy, Sleep
from thermocline.tiered.wrappers.spooled_object import SpooledObject
from thermocline.tiered.wrappers.store_history import StoreHistory
from thermocline.tiered.wrappers.throttling import (
    StoreLimits,
    StoreRates,
    ThrottlingObjectStore,
    monotonic_ms,
    with_read_limit,
)
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

__all__ = [
    "AccountsOf",
    "BoundingObjectStore",
    "Fault",
    "FaultInjectingObjectStore",
    "LedgerCopyStore",
    "MeteringObjectStore",
    "OutageWatch",
    "OutageWatchingObjectStore",
    "ProcessCrash",
    "Result",
    "RetryPolicy",
    "RetryingObjectStore",
    "Sleep",
    "SpooledObject",
    "StoreCall",
    "StoreCounters",
    "StoreHistory",
    "StoreLimits",
    "StoreRates",
    "ThrottlingObjectStore",
    "Verb",
    "WrappingObjectStore",
    "monotonic_ms",
    "with_read_limit",
]
