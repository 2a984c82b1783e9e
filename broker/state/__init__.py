"""State: the documents that are saved in the bucket besides messages, and the reservation of log offsets."""

from thermocline.broker.state import log_reservation
from thermocline.broker.state.log_reservation import LogReservation, encode_ceiling, reserve_bytes
from thermocline.broker.state.state_documents import (
    PoppedOffsets,
    document_paths,
    encode_document,
    hold_back,
    read_document,
)
from thermocline.broker.state.state_link import StateLink

__all__ = [
    "LogReservation",
    "PoppedOffsets",
    "StateLink",
    "document_paths",
    "encode_ceiling",
    "encode_document",
    "hold_back",
    "log_reservation",
    "read_document",
    "reserve_bytes",
]
