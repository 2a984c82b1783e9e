"""What sending and receiving through a proxy means, for every protocol."""

from thermocline.proxy.flow.broker_slots import BrokerSlots
from thermocline.proxy.flow.consumption import Consumption, NoPlaceError, ReceiveOutcome, retry_delay_ms
from thermocline.proxy.flow.held_handles import HeldHandles, RenewalRules, TakenHandle
from thermocline.proxy.flow.production import NoQueueError, Production, TypeConflictError
from thermocline.proxy.flow.traces import Traces, TraceSink

__all__ = [
    "BrokerSlots",
    "Consumption",
    "HeldHandles",
    "NoPlaceError",
    "NoQueueError",
    "Production",
    "ReceiveOutcome",
    "RenewalRules",
    "TakenHandle",
    "TraceSink",
    "Traces",
    "TypeConflictError",
    "retry_delay_ms",
]
