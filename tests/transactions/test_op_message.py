"""Op messages: bodies as RocketMQ writes them, and the buffer that collects them."""

from __future__ import annotations

from thermocline.remoting.records.properties import decode_properties
from thermocline.transactions.op_message import OpBuffer, decode_op_body, op_draft


def test_an_op_message() -> None:
    draft = op_draft(b"15,16,", now_ms=1_000, host=("10.0.0.1", 10911))
    assert (draft.topic, draft.queue_id, draft.body) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"15,16,")
    assert decode_properties(draft.properties_text)["TAGS"] == "d"
    assert (draft.born_timestamp_ms, draft.born_host) == (1_000, ("10.0.0.1", 10911))


def test_bodies_are_read_tolerantly() -> None:
    assert decode_op_body(b"15,16,19,") == [15, 16, 19]
    assert decode_op_body(b"15") == [15]
    assert decode_op_body(b"") == []
    assert decode_op_body(b"7,x,-3,,9,") == [7, 9]


def test_notes_leave_in_their_order_and_once() -> None:
    buffer = OpBuffer()
    assert buffer.first_ms is None
    for now_ms, offset in ((10, 5), (20, 3), (30, 5), (40, 1_000)):
        buffer.add(offset, now_ms)
    assert (len(buffer), buffer.size_bytes, buffer.first_ms) == (3, len(b"5,3,1000,"), 10)
    assert 3 in buffer
    assert buffer.bodies(bytes_max=4_096) == [([5, 3, 1_000], b"5,3,1000,")]
    buffer.written(3)
    assert not buffer
    assert (buffer.size_bytes, buffer.first_ms, 3 in buffer) == (0, None, False)


def test_a_body_ends_with_the_note_that_fills_it() -> None:
    buffer = OpBuffer()
    for offset in range(100, 107):
        buffer.add(offset, 1)
    bodies = buffer.bodies(bytes_max=9)
    assert [body for _, body in bodies] == [b"100,101,102,", b"103,104,105,", b"106,"]
    buffer.written(len(bodies[0][0]))
    assert len(buffer) == 4
    assert buffer.bodies(bytes_max=9)[0][1] == b"103,104,105,"
    assert 102 not in buffer
    assert 103 in buffer
    # A note that was written may come again: a second copy of the same half message cannot, but nothing depends on it.
    buffer.add(102, 2)
    assert 102 in buffer
