"""Known headers: whatever was decoded before, a header is decoded as the codec decodes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline.remoting import known_headers
from thermocline.remoting.command import RemotingCommand, SerializeType, decode_command, encode_binary_fields
from thermocline.remoting.errors import HeaderDecodeError, InvalidRequestError
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.headers.send import SendMessageRequestHeaderV2
from thermocline.remoting.known_headers import KnownHeaders

HEAD_BYTES = 8
BINARY_HEAD_BYTES = 17
SEND = {
    "a": "producers",
    "b": "TopicA",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1795247847083",
    "h": "0",
    "i": "UNIQ_KEY\x01k\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def header_of(fields: Mapping[str, str], *, opaque: int = 1, flag: int = 0, remark: str | None = None) -> bytes:
    command = RemotingCommand(
        code=310,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=dict(fields),
        serialize_type=SerializeType.ROCKETMQ,
    )
    return command.encode()[HEAD_BYTES:]


def by_codec(header_type: type[Header], header: bytes) -> tuple[Header, int, int] | None:
    """What ordinary code makes of it."""
    try:
        command = decode_command((SerializeType.ROCKETMQ << 24 | len(header)).to_bytes(4, "big") + header)
        return command.header(header_type), command.opaque, command.flag
    except (HeaderDecodeError, InvalidRequestError):
        return None


def known_sends() -> KnownHeaders[SendMessageRequestHeaderV2]:
    return KnownHeaders(SendMessageRequestHeaderV2, ints=["queue_id"], longs=["born_timestamp"], text="properties")


numbers = st.one_of(
    st.integers(-2, 12).map(str),
    st.sampled_from(["", "007", "+1", " 1", "1_0", "²", "2147483648", "99999999999999999999", "1795247847083"]),
)
send_fields = st.builds(
    lambda base, other, order: {name: base[name] for name in order if name in base} | other,
    st.just(SEND),
    st.fixed_dictionaries(
        {},
        optional={
            "b": st.sampled_from(["TopicA", "TopicB", "\x00\x01e\x00\x00\x00\x011"]),
            "e": numbers,
            "g": numbers,
            "i": st.one_of(st.text(max_size=8), st.just("\x00\x01j\x00\x00\x00\x017")),
            "j": numbers,
            "h": st.sampled_from(["0", "5"]),
            "x": st.text(max_size=3),
        },
    ),
    st.one_of(st.just(list(SEND)), st.just(list(SEND)), st.permutations(list(SEND)), st.just(list(SEND)[1:])),
)
damages = st.one_of(
    st.none(), st.none(), st.tuples(st.integers(0, 400), st.integers(0, 255)), st.integers(1, 40), st.binary(max_size=9)
)


def damaged(header: bytes, damage: tuple[int, int] | int | bytes | None) -> bytes:
    """With one byte changed, bytes cut off, or bytes added."""
    if damage is None:
        return header
    if isinstance(damage, int):
        return header[:-damage]
    if isinstance(damage, bytes):
        return header + damage
    place, value = damage[0] % len(header), damage[1]
    return header[:place] + bytes((value,)) + header[place + 1 :]


def test_every_header_is_decoded_as_by_the_codec(case_count: Callable[..., int]) -> None:
    decoder = known_sends()

    @settings(max_examples=case_count(quick=300, soak=20_000), deadline=None)
    @given(st.lists(st.tuples(send_fields, st.integers(0, 2**31 - 1), damages), min_size=1, max_size=6))
    def check(sends: list[tuple[dict[str, str], int, tuple[int, int] | int | bytes | None]]) -> None:
        for fields, opaque, damage in sends:
            header = damaged(header_of(fields, opaque=opaque), damage)
            assert decoder.decode(header) == by_codec(SendMessageRequestHeaderV2, header)

    check()


def test_a_header_like_an_earlier_one_is_not_decoded_by_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = known_sends()
    decoder.decode(header_of(SEND))

    def fail(header: bytes) -> RemotingCommand:
        raise AssertionError(header)

    monkeypatch.setattr(known_headers, "decode_binary_header", fail)
    decoded = decoder.decode(header_of(SEND | {"e": "1", "g": "1795247847999", "i": "grün\x01x\x02"}, opaque=9, flag=2))
    assert decoded is not None
    header, opaque, flag = decoded
    assert (header.queue_id, header.born_timestamp, header.properties) == (1, 1795247847999, "grün\x01x\x02")
    assert (header.topic, header.broker_name, opaque, flag) == ("TopicA", "broker-a", 9, 2)


def test_each_caller_has_a_header_of_its_own() -> None:
    """A pull that waits keeps it."""
    decoder: KnownHeaders[PullMessageRequestHeader] = KnownHeaders(
        PullMessageRequestHeader, ints=["queue_id"], longs=["queue_offset", "commit_offset"]
    )
    fields = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "1",
        "queueOffset": "70",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "60",
    }
    decoded = [decoder.decode(header_of(fields | {"queueOffset": str(offset)})) for offset in (70, 71, 72)]
    assert [each[0].queue_offset for each in decoded if each] == [70, 71, 72]


def test_a_field_that_comes_twice_is_left_to_the_codec() -> None:
    """The last one counts, whatever is known."""
    decoder = known_sends()
    decoder.decode(header_of(SEND))
    header = header_of(SEND)
    fields = header[BINARY_HEAD_BYTES + LENGTH.size :] + encode_binary_fields({"e": "2"})
    twice = header[:BINARY_HEAD_BYTES] + LENGTH.pack(len(fields)) + fields
    for _ in range(2):
        decoded = decoder.decode(twice)
        assert decoded == by_codec(SendMessageRequestHeaderV2, twice)
        assert decoded is not None
        assert decoded[0].queue_id == 2


def test_the_remembered_layouts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_headers, "KEYS_MAX", 10)
    decoder = known_sends()
    for number in range(50):
        header = header_of(SEND | {"b": f"Topic{number % 25}", "h": str(number)})
        assert decoder.decode(header) == by_codec(SendMessageRequestHeaderV2, header)
    assert len(decoder._layouts) <= 10
    assert max(map(len, decoder._layouts.values())) <= known_headers.LAYOUTS_MAX
