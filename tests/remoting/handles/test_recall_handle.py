"""Recall handles as official clients get and send them."""

from __future__ import annotations

import base64

import pytest

from thermocline.remoting.errors import IllegalOperationError
from thermocline.remoting.handles.recall_handle import RecallHandle, decode_recall_handle

OFFICIAL = "djEgSXRUaW1lZF9yZWMgYnJva2VyLWEgMTc5NTI0NzkxMjAwMSAwQTA3MDAwMTZDQTM0RTBFMkYyQTY4QjU0NUIxMDAwMA=="
"""From the recorded answer of a 5.5.0 broker to a send with TIMER_DELIVER_MS=1795247912010."""
OFFICIAL_HANDLE = RecallHandle(
    topic="ItTimed_rec",
    broker_name="broker-a",
    timestamp_text="1795247912001",
    unique_key="0A0700016CA34E0E2F2A68B545B10000",
)


def test_a_handle_is_the_official_one() -> None:
    assert OFFICIAL_HANDLE.encode() == OFFICIAL
    assert decode_recall_handle(OFFICIAL) == OFFICIAL_HANDLE
    assert decode_recall_handle(OFFICIAL.rstrip("=")) == OFFICIAL_HANDLE


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "handle",
    ["", "v1", "!!!!", "djEg SXRU", "ä", encoded("v1 a b c"), encoded("v2 a b 1 d"), encoded("v1 a b c  "), "_w=="],
)
def test_invalid_handles_are_refused(handle: str) -> None:
    with pytest.raises(IllegalOperationError, match="recall handle is invalid"):
        decode_recall_handle(handle)
