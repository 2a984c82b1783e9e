"""Typed headers: text to types and back, for every header there is and for what official clients sent.

Covers `remoting/headers/broker.py`, `remoting/headers/read.py`, `remoting/java_long.py`.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.remoting.recorded_rows import COMMANDS, command_name
from thermocline.remoting import headers
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.header_codec import Header, decode_header, encode_header
from thermocline.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    decode_send_header,
    encode_send_header,
)

HEADER_TYPES = sorted(
    (
        value
        for value in (getattr(headers, name) for name in headers.__all__)
        if isinstance(value, type) and issubclass(value, Header)
    ),
    key=lambda header_type: header_type.__name__,
)

REQUEST_HEADERS: dict[int, type[Header]] = {
    11: headers.PullMessageRequestHeader,
    12: headers.QueryMessageRequestHeader,
    14: headers.QueryConsumerOffsetRequestHeader,
    15: headers.UpdateConsumerOffsetRequestHeader,
    17: headers.CreateTopicRequestHeader,
    21: headers.GetAllTopicConfigRequestHeader,
    29: headers.SearchOffsetRequestHeader,
    30: headers.GetMaxOffsetRequestHeader,
    31: headers.GetMinOffsetRequestHeader,
    33: headers.ViewMessageRequestHeader,
    34: headers.HeartbeatRequestHeader,
    35: headers.UnregisterClientRequestHeader,
    36: headers.ConsumerSendMsgBackRequestHeader,
    37: headers.EndTransactionRequestHeader,
    38: headers.GetConsumerListByGroupRequestHeader,
    39: headers.CheckTransactionStateRequestHeader,
    40: headers.NotifyConsumerIdsChangedRequestHeader,
    100: headers.PutKVConfigRequestHeader,
    101: headers.GetKVConfigRequestHeader,
    102: headers.DeleteKVConfigRequestHeader,
    103: headers.RegisterBrokerRequestHeader,
    104: headers.UnregisterBrokerRequestHeader,
    105: headers.GetRouteInfoRequestHeader,
    201: headers.GetAllSubscriptionGroupRequestHeader,
    202: headers.GetTopicStatsInfoRequestHeader,
    203: headers.GetConsumerConnectionListRequestHeader,
    204: headers.GetProducerConnectionListRequestHeader,
    205: headers.WipeWritePermOfBrokerRequestHeader,
    207: headers.DeleteSubscriptionGroupRequestHeader,
    208: headers.GetConsumeStatsRequestHeader,
    215: headers.DeleteTopicRequestHeader,
    216: headers.DeleteTopicFromNamesrvRequestHeader,
    222: headers.ResetOffsetRequestHeader,
    300: headers.QueryTopicConsumeByWhoRequestHeader,
    307: headers.GetConsumerRunningInfoRequestHeader,
    309: headers.ConsumeMessageDirectlyRequestHeader,
    310: headers.SendMessageRequestHeaderV2,
    315: headers.ViewBrokerStatsDataRequestHeader,
    317: headers.GetConsumeStatsInBrokerHeader,
    320: headers.SendMessageRequestHeaderV2,
    321: headers.QueryConsumeQueueRequestHeader,
    325: headers.SendMessageRequestHeaderV2,
    326: headers.ReplyMessageRequestHeader,
    327: headers.AddWritePermOfBrokerRequestHeader,
    351: headers.GetTopicConfigRequestHeader,
    361: headers.PullMessageRequestHeader,
    513: headers.CreateTopicRequestHeader,
    200_050: headers.PopMessageRequestHeader,
    200_051: headers.AckMessageRequestHeader,
    200_053: headers.ChangeInvisibleTimeRequestHeader,
}

RESPONSE_HEADERS: dict[str, type[Header]] = {
    "SEND_MESSAGE_V2": headers.SendMessageResponseHeader,
    "SEND_BATCH_MESSAGE": headers.SendMessageResponseHeader,
    "PULL_MESSAGE": headers.PullMessageResponseHeader,
    "LITE_PULL_MESSAGE": headers.PullMessageResponseHeader,
    "QUERY_MESSAGE": headers.QueryMessageResponseHeader,
    "GET_MAX_OFFSET": headers.OffsetResponseHeader,
    "GET_MIN_OFFSET": headers.OffsetResponseHeader,
    "SEARCH_OFFSET_BY_TIMESTAMP": headers.OffsetResponseHeader,
    "HEART_BEAT": headers.HeartbeatResponseHeader,
    "POP_MESSAGE": headers.PopMessageResponseHeader,
    "GET_KV_CONFIG": headers.GetKVConfigResponseHeader,
    "WIPE_WRITE_PERM_OF_BROKER": headers.WipeWritePermOfBrokerResponseHeader,
    "ADD_WRITE_PERM_OF_BROKER": headers.AddWritePermOfBrokerResponseHeader,
}

# Fields that clients add to any request, and that a send's answer has beside its header.
EXTRA_FIELDS = {"ReqT", "MSG_REGION", "TRACE_ON"}

REQUESTS = [row for row in COMMANDS if row["kind"] != "response" and row.get("extFields")]
ANSWERS = [row for row in COMMANDS if row.get("answers") in RESPONSE_HEADERS and row["code"] == 0]


@pytest.mark.parametrize("row", REQUESTS, ids=command_name)
def test_recorded_request(row: dict[str, Any]) -> None:
    """Every field that an official client sends is known, and written again as it was."""
    sent = {name: value for name, value in row["extFields"].items() if name not in EXTRA_FIELDS}
    header_type = REQUEST_HEADERS[row["code"]]
    written = encode_header(decode_header(header_type, row["extFields"]))
    assert {name: written.get(name) for name in sent} == sent
    defaults = set(written) - set(sent)
    required = {field.encode_name for field in msgspec.structs.fields(header_type) if field.required}
    assert not defaults & required


@pytest.mark.parametrize("row", ANSWERS, ids=command_name)
def test_recorded_answer(row: dict[str, Any]) -> None:
    given_fields = {name: value for name, value in row["extFields"].items() if name not in EXTRA_FIELDS}
    assert encode_header(decode_header(RESPONSE_HEADERS[row["answers"]], row["extFields"])) == given_fields


@pytest.mark.parametrize("header_type", HEADER_TYPES, ids=lambda header_type: header_type.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_round_trip(header_type: type[Header], data: st.DataObject) -> None:
    header = data.draw(st.from_type(header_type))
    assert decode_header(header_type, encode_header(header)) == header


def _value_of(field_type: object) -> st.SearchStrategy[Any]:
    args = getattr(field_type, "__args__", ())
    if type(None) in args:
        return st.none() | _value_of(args[0])
    if hasattr(field_type, "__metadata__"):
        meta = field_type.__metadata__[0]
        return st.integers(meta.ge, meta.le)
    return {str: st.text(st.characters(exclude_categories=("Cs",))), bool: st.booleans()}[field_type]  # type: ignore[index]


for _header_type in HEADER_TYPES:
    st.register_type_strategy(
        _header_type,
        st.builds(
            _header_type,
            **{field.name: _value_of(field.type) for field in msgspec.structs.fields(_header_type)},
        ),
    )


def test_missing_required_field() -> None:
    with pytest.raises(InvalidRequestError, match=r"^the custom field <queueId> is null$"):
        decode_header(GetMaxOffsetRequestHeader, {"topic": "t"})
    with pytest.raises(InvalidRequestError, match=r"^the custom field <a> is null$"):
        decode_send_header(310, None)


@pytest.mark.parametrize("value", ["", "x", " 1", "0x1", "1.5", "99999999999", "-2147483649"])
def test_text_that_is_no_int(value: str) -> None:
    with pytest.raises(InvalidRequestError, match="queueId"):
        decode_header(GetMaxOffsetRequestHeader, {"topic": "t", "queueId": value})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"perm": "+4"}, {"perm": 4}),
        ({"perm": "007"}, {"perm": 7}),
        ({"perm": "x", "readQueueNums": "", "writeQueueNums": "99999999999"}, {"perm": 6, "read_queue_nums": 8}),
        ({"order": "yes", "force": "1"}, {"order": False, "force": True}),
        ({"lo": "7"}, {"logical": False}),
    ],
)
def test_fields_of_lax_clients(fields: dict[str, str], expected: dict[str, object]) -> None:
    """A number that is none counts as not there, a flag that is neither true nor false as false."""
    header = decode_header(headers.CreateTopicRequestHeader, {"topic": "t", **fields})
    assert {name: getattr(header, name) for name in expected} == expected


def test_headers_that_decode_themselves_refuse_texts_that_are_no_number() -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0"}
    assert decode_header(PullMessageRequestHeader, {**fields, "queueId": "+7"}).queue_id == 7
    with pytest.raises(InvalidRequestError):
        decode_header(PullMessageRequestHeader, {**fields, "subVersion": "x"})


def test_text_becomes_its_type() -> None:
    header = decode_header(
        GetMaxOffsetRequestHeader,
        {"topic": "null", "queueId": "-1", "committed": "FALSE", "lo": "true", "bname": "b", "unknown": "x"},
    )
    assert (header.topic, header.queue_id, header.committed) == ("null", -1, False)
    assert (header.logical, header.broker_name) == (True, "b")


def test_null_is_left_out_and_booleans_are_words() -> None:
    header = ConsumerSendMsgBackRequestHeader(offset=5, group="g", delay_level=0)
    assert encode_header(header) == {"offset": "5", "group": "g", "delayLevel": "0", "unitMode": "false"}


def test_send_header_is_one_structure_for_letters_and_long_names() -> None:
    header = SendMessageRequestHeader(
        producer_group="g",
        topic="t",
        queue_id=3,
        sys_flag=1,
        born_timestamp=1_795_247_847_083,
        properties="TAGS\x01a\x02",
        reconsume_times=2,
        unit_mode=False,
        max_reconsume_times=16,
        batch=True,
        broker_name="b",
    )
    letters = encode_send_header(310, header)
    assert letters["b"] == "t"
    assert letters["l"] == "16"
    assert letters["m"] == "true"
    assert letters["n"] == "b"
    long_names = encode_send_header(10, header)
    assert long_names["topic"] == "t"
    assert long_names["bname"] == "b"
    assert decode_send_header(310, letters) == decode_send_header(10, long_names) == header


def test_letters_and_long_names_have_the_same_fields() -> None:
    letters = {field.name: field.default for field in msgspec.structs.fields(SendMessageRequestHeaderV2)}
    long_names = {field.name: field.default for field in msgspec.structs.fields(SendMessageRequestHeader)}
    assert letters.items() <= long_names.items()


@given(
    numbers=st.tuples(*[st.integers(-(1 << 31), (1 << 31) - 1)] * 4),
    born_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
    texts=st.tuples(*[st.text(max_size=9)] * 3),
    optional_numbers=st.tuples(*[st.one_of(st.none(), st.integers(0, 99))] * 2),
    optional_texts=st.tuples(*[st.one_of(st.none(), st.text(max_size=9))] * 2),
    switches=st.tuples(*[st.sampled_from([None, True, False])] * 2),
)
def test_the_letters_of_a_send_are_those_of_its_header(
    numbers: tuple[int, ...],
    born_timestamp: int,
    texts: tuple[str, ...],
    optional_numbers: tuple[int | None, ...],
    optional_texts: tuple[str | None, ...],
    switches: tuple[bool | None, ...],
) -> None:
    values: dict[str, Any] = dict(
        zip(("default_topic_queue_nums", "queue_id", "sys_flag", "flag"), numbers, strict=True),
        born_timestamp=born_timestamp,
        **dict(zip(("producer_group", "topic", "default_topic"), texts, strict=True)),
        **dict(zip(("reconsume_times", "max_reconsume_times"), optional_numbers, strict=True)),
        **dict(zip(("properties", "broker_name"), optional_texts, strict=True)),
        **dict(zip(("unit_mode", "batch"), switches, strict=True)),
    )
    assert values.keys() == {field.name for field in msgspec.structs.fields(SendMessageRequestHeaderV2)}
    assert encode_send_header(310, SendMessageRequestHeader(**values)) == encode_header(
        SendMessageRequestHeaderV2(**values)
    )


def test_misspelt_name_is_kept_on_the_wire() -> None:
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        proxy_forward_client_id="c",
    )
    assert encode_header(header)["proxyFrowardClientId"] == "c"


def test_send_answer() -> None:
    header = SendMessageResponseHeader(msg_id="7F", queue_id=1, queue_offset=2, transaction_id="0A")
    assert encode_header(header) == {"msgId": "7F", "queueId": "1", "queueOffset": "2", "transactionId": "0A"}
