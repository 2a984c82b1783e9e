"""Acting: a slave serves in place of a master that is gone; the master takes its tables back when it returns."""

from thermocline.broker.acting.acting_pop_requests import ActingPopRequests
from thermocline.broker.acting.acting_services import ActingServices
from thermocline.broker.acting.escape_bridge import EscapeBridge
from thermocline.broker.acting.half_escapes import HalfEscapes
from thermocline.broker.acting.handed_over_requests import HandedOverRequests
from thermocline.broker.acting.member_requests import MasterMemberRequests, SlaveMemberRequests
from thermocline.broker.acting.offset_return import OffsetReturn
from thermocline.broker.acting.pre_online import PreOnline

__all__ = [
    "ActingPopRequests",
    "ActingServices",
    "EscapeBridge",
    "HalfEscapes",
    "HandedOverRequests",
    "MasterMemberRequests",
    "OffsetReturn",
    "PreOnline",
    "SlaveMemberRequests",
]
