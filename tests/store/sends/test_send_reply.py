"""Send replies: as the codec writes them, whatever the sizes of their values are."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thermocline.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from thermocline.remoting.frames import FRAME_HEAD, LENGTH
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.send import SendMessageResponseHeader
from thermocline.store.sends.send_properties import reply_properties
from thermocline.store.sends.send_reply import SendReplies

STORE_HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
KEYS = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), min_size=1, max_size=300
)
REGIONS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=300)


@pytest.mark.parametrize("serialize_type", SerializeType)
@given(
    region=REGIONS,
    key=KEYS,
    physical_offset=st.integers(0, 2**62),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**62),
    opaque=st.integers(-(2**31), 2**31 - 1),
    trace_on=st.booleans(),
)
@example(region="r" * 115, key="k", physical_offset=5, queue_id=3, queue_offset=1, opaque=77, trace_on=True)
@example(region="100%b", key="k" * 37, physical_offset=5, queue_id=3, queue_offset=1, opaque=0x25626262, trace_on=True)
def test_a_single_answer_is_the_codecs(
    serialize_type: SerializeType,
    *,
    region: str,
    key: str,
    physical_offset: int,
    queue_id: int,
    queue_offset: int,
    opaque: int,
    trace_on: bool,
) -> None:
    replies = SendReplies(store_host=STORE_HOST, region_id=region, trace_on=trace_on)
    is_binary = serialize_type is SerializeType.ROCKETMQ
    values = physical_offset, queue_id, queue_offset, key.encode(), opaque
    if is_binary:
        frame = replies.binary_single(*values)
    else:
        text = replies.json_single % values
        frame = FRAME_HEAD.pack(len(text) + LENGTH.size, len(text)) + text
    header = SendMessageResponseHeader(
        msg_id=f"{STORE_HOST.hex().upper()}{physical_offset:016X}",
        queue_id=queue_id,
        queue_offset=queue_offset,
        transaction_id=key,
    )
    expected = RemotingCommand(
        code=0,
        opaque=opaque,
        flag=FLAG_RESPONSE,
        ext_fields=encode_header(header) | reply_properties(region_id=region, trace_on=trace_on),
        serialize_type=serialize_type,
    )
    assert frame == expected.encode()
    assert LENGTH.unpack_from(frame) == (len(frame) - LENGTH.size,)
