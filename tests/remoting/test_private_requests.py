"""Private requests: their numbers and the names of their fields on the wire, which older tools and brokers use too."""

from __future__ import annotations

import pytest

from thermocline.remoting.header_codec import Header, decode_header, encode_header
from thermocline.remoting.private_requests import (
    FlushedRangesHeader,
    HandOffHeader,
    HandOffLookHeader,
    PrivateRequestCode,
    ScrubHeader,
    TierCostHeader,
    TierHeader,
    TierPurgeHeader,
    TtlEvidenceHeader,
    TtlHeader,
)
from thermocline.remoting.request_code import RequestCode

NUMBERS = {
    "TIER_STATUS": 90101,
    "TIER_SEAL": 90102,
    "TIER_EXPLAIN": 90103,
    "TTL_PREVIEW": 90104,
    "TTL_SET": 90105,
    "TTL_EVIDENCE": 90106,
    "TIER_SCRUB": 90120,
    "TIER_SCRUB_STATE": 90121,
    "TIER_PURGE": 90130,
    "TIER_COST": 90140,
    "HAND_OFF_LOOK": 90150,
    "HAND_OFF_PREPARE": 90151,
    "HAND_OFF_APPLY": 90152,
    "HAND_OFF_ABORT": 90153,
    "FLUSHED_RANGES": 90160,
    "ACL_CHECK": 90170,
    "ACL_VERSION": 90171,
    "PROXIED_CLIENTS_REPORT": 90180,
    "PROXIED_CLIENTS_LIST": 90181,
    "TOPIC_INCARNATIONS": 90190,
    "REPLICA_SOURCE": 90191,
    "REPLICA_HAND_OVER": 90192,
    "CONTROLLER_CONSENSUS": 90200,
    "CONTROLLER_STATUS": 90201,
}


def test_numbers_stay_and_are_not_rocketmqs() -> None:
    assert {code.name: code.value for code in PrivateRequestCode} == NUMBERS
    assert not set(NUMBERS.values()) & {code.value for code in RequestCode}
    assert all(5_001 < number < 200_050 for number in NUMBERS.values())


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (TierHeader(), {}),
        (TierHeader(topic="T", queue_id=0), {"topic": "T", "queueId": "0"}),
        (TierPurgeHeader(topic="T"), {"topic": "T"}),
        (TierCostHeader(topic="T"), {"topic": "T"}),
        (
            TierCostHeader(forecast=True, ttl_ms=0, segment_bytes=1, seal_age_ms=2),
            {"forecast": "true", "ttlMs": "0", "segmentBytes": "1", "sealAgeMs": "2"},
        ),
        (ScrubHeader(deep=True), {"deep": "true", "heal": "false", "afresh": "false"}),
        (
            ScrubHeader(budget_bytes=1, bytes_per_second=2),
            {"deep": "false", "heal": "false", "afresh": "false", "budgetBytes": "1", "bytesPerSecond": "2"},
        ),
        (TtlHeader(topic="T"), {"topic": "T"}),
        (TtlHeader(topic="T", ttl_ms=0), {"topic": "T", "ttlMs": "0"}),
        (TtlEvidenceHeader(topic="T"), {"topic": "T"}),
        (HandOffLookHeader(group="G", topic="T"), {"group": "G", "topic": "T"}),
        (HandOffHeader(group="G", receipt_id="R"), {"group": "G", "receiptId": "R"}),
        (FlushedRangesHeader(topic="T"), {"topic": "T"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Header) else "",
)
def test_fields_on_the_wire(header: Header, fields: dict[str, str]) -> None:
    assert encode_header(header) == fields
    assert decode_header(type(header), fields) == header
