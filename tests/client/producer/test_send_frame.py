"""Send frames against the ordinary command decoder."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.client.producer.send_answer import decode_answer
from thermocline.client.producer.send_frame import SendTemplate
from thermocline.remoting.command import decode_command
from thermocline.remoting.headers import decode_send_header
from thermocline.remoting.request_code import RequestCode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    names=st.tuples(TEXT, TEXT, TEXT, TEXT),
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    properties_text=TEXT,
    body=st.binary(max_size=40),
    opaque=st.integers(0, 2**31 - 1),
    command_flag=st.sampled_from([0, 2]),
    batch=st.booleans(),
)
def test_frames_of_a_template_decode_to_their_fields(
    names: tuple[str, str, str, str],
    queue_id: int,
    flag: int,
    properties_text: str,
    body: bytes,
    opaque: int,
    command_flag: int,
    batch: bool,
) -> None:
    group, topic, broker_name, default_topic = names
    template = SendTemplate.render(
        group=group,
        topic=topic,
        broker_name=broker_name,
        queue_id=queue_id,
        default_topic=default_topic,
        default_topic_queue_nums=4,
        batch=batch,
    )
    frame = template.fill(
        sys_flag=1,
        born_timestamp_ms=1_700_000_000_000,
        flag=flag,
        properties_text=properties_text,
        body=body,
        opaque=opaque,
        command_flag=command_flag,
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    command = decode_command(memoryview(frame)[4:])
    assert command.code == (RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2)
    assert (command.opaque, command.flag, bytes(command.body)) == (opaque, command_flag, body)
    header = decode_send_header(command.code, command.ext_fields)
    assert (header.producer_group, header.topic, header.default_topic) == (group, topic, default_topic)
    assert (header.broker_name, header.queue_id, header.sys_flag) == (broker_name, queue_id, 1)
    assert (header.born_timestamp, header.flag, header.properties) == (1_700_000_000_000, flag, properties_text)
    assert header.batch is batch


def test_an_answer_with_more_or_fewer_fields_is_read() -> None:
    answer = decode_answer(b'{"code":0,"opaque":7,"flag":1,"extFields":{"queueOffset":"12","queueId":"3","new":"x"}}')
    assert answer.ext_fields is not None
    assert (answer.opaque, answer.ext_fields.queue_offset, answer.ext_fields.queue_id) == (7, 12, 3)
    assert decode_answer(b'{"code":1,"opaque":8,"flag":1,"remark":"no"}').ext_fields is None
    with pytest.raises(msgspec.MsgspecError):
        decode_answer(b"not json")
