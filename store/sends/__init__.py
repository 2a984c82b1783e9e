"""Sends: the fast path of a send from its frame to its answer."""

from thermocline.store.sends.fast_path import (
    FRAME_HEAD_BYTES,
    FastPath,
    FastPathSettings,
    RefusedHeader,
    RefusedSend,
    SendGuard,
    SendTarget,
)
from thermocline.store.sends.send_header import (
    BINARY_CODES,
    CODE_BYTES,
    HEADER_BYTES_MASK,
    JSON_FORMS,
    PREFIX_BYTES,
    SendRequest,
    SignedSend,
)
from thermocline.store.sends.send_properties import (
    PRIORITY,
    broker_suffix,
    reply_properties,
    stored_text,
    waits_for_store,
)

__all__ = [
    "BINARY_CODES",
    "CODE_BYTES",
    "FRAME_HEAD_BYTES",
    "HEADER_BYTES_MASK",
    "JSON_FORMS",
    "PREFIX_BYTES",
    "PRIORITY",
    "FastPath",
    "FastPathSettings",
    "RefusedHeader",
    "RefusedSend",
    "SendGuard",
    "SendRequest",
    "SendTarget",
    "SignedSend",
    "broker_suffix",
    "reply_properties",
    "stored_text",
    "waits_for_store",
]
