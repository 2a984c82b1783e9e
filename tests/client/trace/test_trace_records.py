"""Trace records: the official clients' text, written out, and read back."""

from __future__ import annotations

import pytest

from thermocline.client.trace.trace_records import (
    ConsumeOutcome,
    MessageKind,
    PublishTrace,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
    TraceRecord,
    decode_trace,
    encode_trace,
    trace_keys,
)
from thermocline.remoting.errors import CorruptDataError

PUBLISHED = PublishTrace(
    timestamp_ms=1_795_248_117_000,
    region="DefaultRegion",
    group="shop",
    topic="orders",
    message_id="0A070001",
    tags="",
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    body_bytes=20,
    cost_ms=3,
    kind=MessageKind.DELAYED,
    offset_message_id="7F000001",
    succeeded=True,
)
BEFORE = SubscribeBeforeTrace(
    timestamp_ms=5, region="DefaultRegion", group="billing", request_id="R1", message_id="0A07", retry_times=2, keys=""
)
AFTER = SubscribeAfterTrace(
    request_id="R1",
    message_id="0A07",
    cost_ms=7,
    succeeded=False,
    keys="k3",
    outcome=ConsumeOutcome.EXCEPTION,
    timestamp_ms=5,
    group="billing",
)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            PUBLISHED,
            "Pub|1795248117000|DefaultRegion|shop|orders|0A070001|null|k1 k2|127.0.0.1:10911|20|3|3|7F000001|true;",
        ),
        (BEFORE, "SubBefore|5|DefaultRegion|billing|R1|0A07|2|null;"),
        (AFTER, "SubAfter|R1|0A07|7|false|k3|2|5|billing;"),
    ],
)
def test_a_record_has_the_text_of_the_official_clients(record: TraceRecord, text: str) -> None:
    encoded = encode_trace(record)
    assert encoded == text.replace("|", "\x01").replace(";", "\x02")
    assert list(decode_trace(encoded)) == [record]


def test_records_stand_one_after_another_and_unknown_kinds_are_passed_over() -> None:
    text = encode_trace(BEFORE) + "Recall\x011\x02" + encode_trace(AFTER)
    assert list(decode_trace(text)) == [BEFORE, AFTER]


def test_an_old_clients_record_is_read_without_an_offset_message_id() -> None:
    text = "Pub|5|r|g|t|id|null|null|host|1|2|0|true;".replace("|", "\x01").replace(";", "\x02")
    (record,) = decode_trace(text)
    assert isinstance(record, PublishTrace)
    assert (record.offset_message_id, record.succeeded) == ("", True)


@pytest.mark.parametrize("text", ["Pub\x015\x02", "SubBefore\x01five\x01r\x01g\x01q\x01m\x010\x01k\x02"])
def test_half_a_record_is_refused(text: str) -> None:
    with pytest.raises(CorruptDataError):
        list(decode_trace(text))


def test_a_trace_message_is_found_by_ids_and_keys() -> None:
    assert trace_keys([PUBLISHED, BEFORE, AFTER]) == ["0A070001", "k1", "k2", "0A07", "k3"]
