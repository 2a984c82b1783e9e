"""Messages and configurations with odd numbers: clients get them all the same.

Covers `proxy/grpc/service/delivered_message.py` and `proxy/grpc/service/client_settings.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxy.proxy_under_test import consumer_settings
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.grpc.service.client_settings import attempts_max, merged_settings
from thermocline.proxy.grpc.service.delivered_message import TIME_MS_MAX, TIME_MS_MIN, to_message
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.offsets import LOG_START, QUEUE_START
from thermocline.remoting.records.message_record import decode_record, encode_record

INT_MAX = (1 << 31) - 1


def delivered(*, reconsume_times: int = 0, born_ms: int = 1, **properties: str) -> Any:
    """A stored message with these properties, as a client gets it."""
    record = encode_record(
        topic="T",
        queue_id=0,
        queue_offset=QUEUE_START,
        physical_offset=LOG_START,
        body=b"body",
        properties_text="".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode(),
        born_timestamp_ms=born_ms,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=1,
        store_host=("127.0.0.1", 1),
        reconsume_times=reconsume_times,
    )
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    return to_message(ReceivedMessage(decode_record(record), queue=queue), topic="T").system_properties


@pytest.mark.parametrize(
    ("text", "delivery_ms"),
    [("1500", 1_500), ("-1500", -1_500), ("--5", None), ("-", None), ("", None), ("x", None), ("9" * 16, None)],
)
def test_a_delivery_time_that_is_no_number_is_left_out(text: str, delivery_ms: int | None) -> None:
    system = delivered(TIMER_DELIVER_MS=text)
    assert system.HasField("delivery_timestamp") == (delivery_ms is not None)
    assert delivery_ms is None or system.delivery_timestamp.ToMilliseconds() == delivery_ms


@pytest.mark.parametrize("time_ms", [-(1 << 63), -1, 0, 1_795_754_156_369, 999_999_999_999_999, (1 << 63) - 1])
def test_every_time_is_one_that_clients_can_read(time_ms: int) -> None:
    system = delivered(born_ms=time_ms, TIMER_DELIVER_MS=str(time_ms))
    for name in ("born_timestamp", "delivery_timestamp"):
        if system.HasField(name):
            timestamp = getattr(system, name)
            assert 1 <= timestamp.ToDatetime().year <= 9999
            assert timestamp.ToMilliseconds() == max(TIME_MS_MIN, min(time_ms, TIME_MS_MAX))


@pytest.mark.parametrize(("times", "attempt"), [(0, 1), (INT_MAX - 1, INT_MAX), (INT_MAX, INT_MAX), (-5, -4)])
def test_a_message_that_was_tried_as_often_as_can_be_counted(times: int, attempt: int) -> None:
    assert delivered(reconsume_times=times).delivery_attempt == attempt


@pytest.mark.parametrize(("retries", "attempts"), [(16, 17), (0, 1), (INT_MAX, INT_MAX)])
def test_a_group_that_retries_for_ever_has_settings(retries: int, attempts: int) -> None:
    group = SubscriptionGroupConfig(group_name="g", retry_max_times=retries)
    assert attempts_max(group) == attempts
    merged = merged_settings(consumer_settings(), ProxyConfig(), group)
    assert merged.backoff_policy.max_attempts == attempts
