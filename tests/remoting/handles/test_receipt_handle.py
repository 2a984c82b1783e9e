"""Receipt handles: as recorded from an official broker, and what is none."""

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.handles.receipt_handle import ReceiptHandle

RECORDED = "2 1795248091162 10000 7 0 broker-a 1 2"
RECORDED_RETRY = "0 1795248104732 10000 3 1 broker-a 0 0"


def test_recorded_handles_are_read_and_written_the_same() -> None:
    handle = ReceiptHandle.parse(RECORDED)
    assert handle == ReceiptHandle(
        start_offset=2,
        pop_time_ms=1_795_248_091_162,
        invisible_ms=10_000,
        revive_queue_id=7,
        retry_flag=0,
        broker_name="broker-a",
        queue_id=1,
        queue_offset=2,
    )
    assert handle.revive_time_ms == 1_795_248_101_162
    assert not handle.is_order
    assert handle.text() == RECORDED
    assert ReceiptHandle.parse(RECORDED_RETRY).text() == RECORDED_RETRY


def test_old_clients_leave_the_offset_out() -> None:
    assert ReceiptHandle.parse(RECORDED.rpartition(" ")[0]).queue_offset == -1


def test_fields_added_by_a_proxy_are_ignored() -> None:
    assert ReceiptHandle.parse(RECORDED + " 4096").text() == RECORDED


def test_ordered_pops_have_a_revive_queue_of_their_own() -> None:
    assert ReceiptHandle.parse("2 1795248091162 10000 999 0 broker-a 1 2").is_order


@pytest.mark.parametrize("text", ["", "x", "1 2 3 4 5 6", "1 2 3 4 0 broker-a x 7", "a" * 100_000])
def test_invalid_handles_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a receipt handle"):
        ReceiptHandle.parse(text)
