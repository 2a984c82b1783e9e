"""POP: admission of POPs, reading of queues for them, long polling, the return of unacknowledged messages,
and what of it goes to another master."""

from thermocline.broker.pops.escaped_pops import EscapedCheckPoint, EscapedPops, RecordPlace
from thermocline.broker.pops.pop_admission import PopAdmission
from thermocline.broker.pops.pop_finder import FoundQueue, LaterNeeded, PopFinder, PopHarvest
from thermocline.broker.pops.pop_polling import ANY_QUEUE, Parking, Place, PopPolling
from thermocline.broker.pops.pop_request import ANSWER_BYTES_MAX, PopRequest
from thermocline.broker.pops.pop_reviver import PopReviver
from thermocline.broker.pops.pop_setup import make_pop_store

__all__ = [
    "ANSWER_BYTES_MAX",
    "ANY_QUEUE",
    "EscapedCheckPoint",
    "EscapedPops",
    "FoundQueue",
    "LaterNeeded",
    "Parking",
    "Place",
    "PopAdmission",
    "PopFinder",
    "PopHarvest",
    "PopPolling",
    "PopRequest",
    "PopReviver",
    "RecordPlace",
    "make_pop_store",
]
