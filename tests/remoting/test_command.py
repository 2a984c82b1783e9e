"""Commands in both header serialisations: recorded ones, any ones, and those that are none.

Covers `remoting/language_code.py`.
"""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remoting.recorded_rows import COMMANDS, body_bytes, command_name, json_header
from thermocline.remoting.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    ODD_HEADER_BYTES_MAX,
    RemotingCommand,
    SerializeType,
    decode_command,
)
from thermocline.remoting.errors import HeaderDecodeError
from thermocline.remoting.language_code import LanguageCode

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)

COMMAND = st.builds(
    RemotingCommand,
    code=INT16,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LanguageCode),
    version=INT16,
    remark=st.none() | TEXTS.filter(bool),
    ext_fields=st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=6),
    body=st.binary(max_size=50),
    serialize_type=st.sampled_from(SerializeType),
)


def frame_content(header: bytes, body: bytes = b"", *, serialize_type: int = 0) -> bytes:
    return struct.pack(">I", serialize_type << 24 | len(header)) + header + body


@given(command=COMMAND)
def test_round_trip(command: RemotingCommand) -> None:
    frame = command.encode()
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    assert decode_command(frame[4:]) == command
    assert decode_command(memoryview(frame)[4:]) == command
    assert command.encode_head(body_bytes=len(command.body)) + command.body == frame


@pytest.mark.parametrize("row", COMMANDS, ids=command_name)
def test_recorded_command(row: dict[str, Any]) -> None:
    """What an official peer sent is understood, and written again with the same bytes."""
    frame = frame_content(json_header(row), body_bytes(row))
    command = decode_command(frame)
    assert command.code == row["code"]
    assert command.opaque == row["opaque"]
    assert command.language is LanguageCode.JAVA
    assert command.version == 513
    assert command.remark == row.get("remark")
    assert command.ext_fields == row.get("extFields")
    assert command.body == body_bytes(row)
    assert command.is_response == (row["kind"] == "response")
    assert command.is_oneway == (row["kind"] == "oneway")
    assert command.encode()[4:] == frame


def test_binary_header_bytes() -> None:
    """Written out by hand from the layout."""
    command = RemotingCommand(
        code=310,
        opaque=7,
        flag=2,
        language=LanguageCode.GO,
        version=513,
        remark="hé",
        ext_fields={"a": "grün"},
        body=b"!",
        serialize_type=SerializeType.ROCKETMQ,
    )
    header = (
        b"\x01\x36" + b"\x09" + b"\x02\x01" + b"\x00\x00\x00\x07" + b"\x00\x00\x00\x02"
        b"\x00\x00\x00\x03h\xc3\xa9" + b"\x00\x00\x00\x0c" + b"\x00\x01a" + b"\x00\x00\x00\x05gr\xc3\xbcn"
    )
    assert command.encode() == b"\x00\x00\x00\x29\x01\x00\x00\x24" + header + b"!"


def test_binary_header_cuts_pop_codes_as_java_does() -> None:
    command = RemotingCommand(code=200_050, opaque=1, serialize_type=SerializeType.ROCKETMQ)
    assert decode_command(command.encode()[4:]).code == 3442


def test_json_header_leaves_out_null_fields() -> None:
    command = RemotingCommand(code=0, opaque=5, flag=1, language=LanguageCode.JAVA)
    assert command.encode()[8:] == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_response_answers_in_the_serialisation_asked() -> None:
    for serialize_type in SerializeType:
        request = RemotingCommand.request(11, oneway=True, serialize_type=serialize_type)
        assert request.flag == FLAG_ONEWAY
        response = RemotingCommand.response(request, 17, remark="gone", ext_fields={"k": "v"})
        assert (response.opaque, response.flag, response.code) == (request.opaque, FLAG_RESPONSE, 17)
        assert response.serialize_type is serialize_type


def test_requests_have_opaques_of_their_own() -> None:
    opaques = [RemotingCommand.request(10).opaque for _ in range(10)]
    assert len(set(opaques)) == 10
    assert all(opaque >= 0 for opaque in opaques)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b'{"code":34,"opaque":1}', {"code": 34, "opaque": 1, "language": LanguageCode.JAVA, "ext_fields": None}),
        (b'{"code":34,"language":"COBOL"}', {"language": LanguageCode.OTHER}),
        (b'{"code":34,"language":null,"remark":null,"extFields":null}', {"language": LanguageCode.JAVA}),
        (b'{"code":"34","opaque":"9"}', {"code": 34, "opaque": 9}),
        (b'{"code":34,"unknown":[1,{"x":2}]}', {"code": 34}),
        (
            b'{"code":34,"extFields":{"a":1,"b":null,"c":true,"d":"x","e":1.5}}',
            {"ext_fields": {"a": "1", "c": "true", "d": "x", "e": "1.5"}},
        ),
        (b'{"code":34,"language":3}', {"language": LanguageCode.PYTHON}),
        (b'{"code":34,"language":"1"}', {"language": LanguageCode.CPP}),
        (b'{"code":"34","language":"go"}', {"code": 34, "language": LanguageCode.GO}),
        (b'{"code":34,"language":"Node-JS"}', {"language": LanguageCode.NODE_JS}),
        (b'{"code":34,"language":3.0}', {"language": LanguageCode.PYTHON}),
        (b'{"code":34,"language":[3]}', {"language": LanguageCode.OTHER}),
        (b'{"code":34,"language":{}}', {"language": LanguageCode.OTHER}),
        (b'{"code":34,"language":99}', {"language": LanguageCode.OTHER}),
        (b"{'code':34,'opaque':7.0,'extFields':{0:'a'}}", {"code": 34, "opaque": 7, "ext_fields": {"0": "a"}}),
    ],
)
def test_headers_of_lax_clients(header: bytes, expected: dict[str, Any]) -> None:
    command = decode_command(frame_content(header))
    assert {name: getattr(command, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("header", "serialize_type"),
    [
        (b"", 0),
        (b"{", 0),
        (b"[]", 0),
        (b"null", 0),
        (b'{"code":"x"}', 0),
        (b'{"code":99999999999}', 0),
        (b'{"opaque":"x"}', 0),
        (b'{"code":1,"extFields":[]}', 0),
        (b'{"code":1,"remark":"\xff"}', 0),
        (b"[" * 100_000, 0),
        (b"", 1),
        (b"\x00" * 16, 1),
        (b"\x00" * 17 + b"\x7f\xff\xff\xff", 1),
        (b"\x00" * 17 + b"\xff\xff\xff\xff", 1),
        (b"\x00" * 13 + b"\x7f\xff\xff\xff" + b"\x00" * 4, 1),
        (b"\x00" * 13 + b"\xff\xff\xff\xff" + b"\x00" * 4, 1),
        (b"\x00" * 13 + b"\x00\x00\x00\x01\xff" + b"\x00" * 4, 1),
        (b"\x00" * 17 + b"\x00\x00\x00\x03\x00\x05a", 1),
        (b"\x00" * 17 + b"\x00\x00\x00\x07\x00\x01a\x00\x00\x00\x09", 1),
        (b"{}", 2),
        (b"{}", 255),
    ],
)
def test_broken_headers(header: bytes, serialize_type: int) -> None:
    with pytest.raises(HeaderDecodeError):
        decode_command(frame_content(header, serialize_type=serialize_type))


def test_header_beyond_its_frame() -> None:
    with pytest.raises(HeaderDecodeError):
        decode_command(b"\x00\x00\x00\x05{}")
    with pytest.raises(HeaderDecodeError):
        decode_command(b"\x00\x00")


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    for serialize_type in SerializeType:
        command = RemotingCommand(
            code=1, opaque=1, remark="a\ud800", ext_fields={"k\udfff": "v\ud800"}, serialize_type=serialize_type
        )
        decoded = decode_command(command.encode()[4:])
        assert (decoded.remark, decoded.ext_fields) == ("a?", {"k?": "v?"})


def test_body_is_a_copy() -> None:
    frame = bytearray(RemotingCommand(code=1, opaque=1, body=b"body").encode()[4:])
    command = decode_command(frame)
    frame[-4:] = b"gone"
    assert command.body == b"body"


def test_a_header_of_an_odd_form_is_bounded_in_size() -> None:
    """It takes the loop long; one that is written as usual is not bounded."""
    fields = ",".join(f'"{number}":%s' for number in range(30_000))
    for value, is_refused in (("1", True), ('"1"', False)):
        header = f'{{"code":34,"extFields":{{{fields.replace("%s", value)}}}}}'.encode()
        assert len(header) > ODD_HEADER_BYTES_MAX
        frame = struct.pack(">I", len(header)) + header
        if is_refused:
            with pytest.raises(HeaderDecodeError, match="too large"):
                decode_command(frame)
        else:
            assert len(decode_command(frame).ext_fields or {}) == 30_000
