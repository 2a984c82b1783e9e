"""The JSON of the Java side: we read the forms that it writes, and write forms that it reads."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting import json_dialect
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.json_dialect import (
    DIALECT_BYTES_MAX,
    STRUCTURE_BYTES_MIN,
    ObjectKey,
    dumps,
    dumps_dialect,
    loads,
    loads_as,
    loads_dialect,
    loads_file_as,
)

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS.filter(lambda t: t != "$ref"), inner, max_size=4),
    max_leaves=20,
)
DIALECT_VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(-(2**63), 2**63 - 1) | TEXTS.filter(lambda t: t != "$ref"), inner, max_size=4)
    ),
    max_leaves=20,
)


class Key(msgspec.Struct, frozen=True):
    queue: int
    topic: str


@given(value=VALUES)
def test_standard_round_trip(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads_dialect(dumps(value)) == value
    assert json.loads(dumps(value)) == value
    ascii_text = dumps(value, ascii_only=True)
    assert ascii_text.isascii()
    assert json.loads(ascii_text) == value


@given(value=DIALECT_VALUES)
def test_dialect_round_trip(value: Any) -> None:
    assert loads(dumps_dialect(value)) == value


def test_written_forms() -> None:
    assert dumps({"b": 1, "a": None, "c": {"e": 2, "d": [None, "ü"]}}) == '{"b":1,"c":{"d":[null,"ü"],"e":2}}'.encode()
    assert dumps({"k": "gr\u00fcn \U0001f600"}, ascii_only=True) == b'{"k":"gr\\u00fcn \\ud83d\\ude00"}'
    assert dumps({1: "x", 0: "y"}) == b'{"0":"y","1":"x"}'
    assert dumps_dialect({1: "x", 0: None, 10: "y", 9: "z"}) == b'{1:"x",9:"z",10:"y"}'
    assert dumps_dialect({Key(2, "t"): 1, Key(1, "t"): {0: True}}) == (
        b'{{"queue":1,"topic":"t"}:{0:true},{"queue":2,"topic":"t"}:1}'
    )
    assert dumps_dialect([{3, 1, 2}, (1.5, "a")]) == b'[[1,2,3],[1.5,"a"]]'
    assert dumps("null") == b'"null"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{0:"a",-1:"b"}', {0: "a", -1: "b"}),
        ('{"0":"a"}', {"0": "a"}),
        ("{name:'x',\"b\":'it\\'s'}", {"name": "x", "b": "it's"}),
        ("[1,2,]", [1, 2]),
        ('{"a":1,,"b":2,}', {"a": 1, "b": 2}),
        ('{0:[],"b":{}}', {0: [], "b": {}}),
        (' { 0 : 1.5e3 , "x" : 7L } ', {0: 1500.0, "x": 7}),
        ('{0:"\\u0041\\n\\/\\ud83d\\ude00"}', {0: "A\n/\U0001f600"}),
        ("[1 2]", [1, 2]),
        ("{a:1 b:2}", {"a": 1, "b": 2}),
        ("/* of a client */ {a:1 // first\n, b:2} // end", {"a": 1, "b": 2}),
        ("\ufeff{a:+7,b:007}", {"a": 7, "b": 7}),
        ("{a:'\\x41\\v\\0\\F\n'}", {"a": "A\v\0\f\n"}),
        ("{0:null,1:true,2:false}", {0: None, 1: True, 2: False}),
    ],
)
def test_tolerated_forms(text: str, expected: object) -> None:
    assert loads(text.encode()) == expected


def test_objects_as_keys() -> None:
    value = loads(b'{{"topic":"t","queue":1}:7,{"queue":2,"topic":"t"}:8}')
    assert value == {ObjectKey(queue=1, topic="t"): 7, ObjectKey(queue=2, topic="t"): 8}
    assert loads_as(b'{{"topic":"t","queue":1}:7}', dict[Key, int]) == {Key(1, "t"): 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{0:{"x":1},"b":[{"$ref":"$[0]"}]}', {0: {"x": 1}, "b": [{"x": 1}]}),
        ('{"a":[5,{"y":2}],"b":{"$ref":"$.a[1]"}}', {"a": [5, {"y": 2}], "b": {"y": 2}}),
        ('{"a":{"k.k":3},"b":{"$ref":"$.a[\'k.k\']"}}', {"a": {"k.k": 3}, "b": 3}),
        ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.c"},"c":4}', {"a": 4, "b": 4, "c": 4}),
        ('{"a":{"$ref":"$.nowhere[3].x"}}', {"a": None}),
        ('{"a":{"$ref":"$"}}', {"a": None}),
        ('{"a":{"b":{"$ref":".."}}}', {"a": {"b": None}}),
        ('{"a":{"b":{"$ref":"@"}}}', {"a": {"b": None}}),
        ('{"a":{"$ref":"elsewhere"}}', {"a": None}),
    ],
)
def test_references(text: str, expected: object) -> None:
    assert loads(text.encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{0:"a}',
        b'{0:"\\',
        b'{0:"\\x"}',
        b'{0:"\\u12"}',
        b'{0:"\\ud800x"}',
        b'{0:"\\ud800\\u0041"}',
        b'{0:"\\udc00"}',
        b"{0:1}x",
        b"{0 1}",
        b"[1 2",
        b"{a:1 b:2",
        b"{a:1} b:2}",
        b"[1 /* 2]",
        b'{0:"\\x4"}',
        b"{[1]:2}",
        b"nonsense",
        b"\xff\xfe",
        b"{0:" * 200,
        b"[" * 100_000,
        b'{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
    ],
)
def test_invalid_json_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        loads(text)


def test_references_cannot_blow_up() -> None:
    """Each level names the one before ten times: ten to the twelfth values from a few hundred bytes."""
    levels = ['"a0":[1,2]']
    levels += [f'"a{n}":[' + ",".join([f'{{"$ref":"$.a{n - 1}"}}'] * 10) + "]" for n in range(1, 13)]
    with pytest.raises(InvalidRequestError, match="too many references"):
        loads(("{" + ",".join(levels) + "}").encode())


def test_dialect_is_bounded_in_size() -> None:
    with pytest.raises(InvalidRequestError, match="too large"):
        loads(b"{0:" + b" " * DIALECT_BYTES_MAX + b"1}")


@pytest.mark.parametrize(
    "text",
    [
        "{0:{1:2}, -3 : {4:5,\n6:7}}",
        '{"0":{"1":2}}',
        '{0:{1:"2"},}',
        "{'0':{1:2}}",
        "{/* {8: */0:{1:2}}",
        '{"0":{"1":{"$ref":"$.2"}},"2":3}',
    ],
)
def test_a_file_is_read_as_a_body_is(text: str) -> None:
    value_type = dict[int, dict[int, int]]
    try:
        expected: object = loads_as(text.encode(), value_type)
    except InvalidRequestError:
        with pytest.raises(InvalidRequestError):
            loads_file_as(text.encode(), value_type)
    else:
        assert loads_file_as(text.encode(), value_type) == expected


def test_a_large_body_with_integer_keys_is_read_by_its_structure() -> None:
    space = b" " * DIALECT_BYTES_MAX
    assert loads_as(b"{0:" + space + b"1}", dict[int, int]) == {0: 1}
    for text in (b"{0:" + space + b"1,}", b"{0:" + space + b"}", b"[" + space, b'{0:{"$ref":"$"}}' + space):
        with pytest.raises(InvalidRequestError):
            loads_as(text, dict[int, int])


def test_the_slow_parser_does_not_read_integer_keys_of_many_kilobytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One static topic made a registration of 10000 topics five times as slow."""
    text = b"{%b}" % b",".join(b'"topic%d":{0:%d}' % (number, number) for number in range(5_000))
    assert STRUCTURE_BYTES_MIN < len(text) < DIALECT_BYTES_MAX
    expected = loads_as(text, dict[str, dict[str, int]])
    monkeypatch.delattr(json_dialect, "_Parser")
    assert loads_as(text, dict[str, dict[str, int]]) == expected
    assert expected["topic7"] == {"0": 7}


def test_keys_of_a_file_are_not_looked_for_in_its_texts() -> None:
    text = r'{"a{1:":"{2:\\",3:"\"{4:5,6:"}'
    assert loads_file_as(text.encode(), dict[str, str]) == {"a{1:": "{2:\\", "3": '"{4:5,6:'}


def test_a_file_is_not_bounded_in_size() -> None:
    space = b" " * DIALECT_BYTES_MAX
    assert loads_file_as(b"{0:" + space + b"1}", dict[int, int]) == {0: 1}
    assert loads_file_as(b"{0:" + space + b"1,}", dict[int, int]) == {0: 1}, "the slow way"


@pytest.mark.parametrize("space", ["", " " * DIALECT_BYTES_MAX], ids=["small", "large"])
def test_files_are_not_bounded_in_size(space: str) -> None:
    text = r'{"a{4:":{0:-5, 22 :7,"3":8},"\"{1:":{-9:1},"b\\":{' + f"\n12\n:3{space}" + "}}"
    assert loads_file_as(text.encode(), dict[str, dict[int, int]]) == {
        "a{4:": {0: -5, 22: 7, 3: 8},
        '"{1:': {-9: 1},
        "b\\": {12: 3},
    }


def test_keys_have_different_hashes() -> None:
    """Else reading a map takes the square of its size: minutes of the loop for one request."""
    objects = loads(b"{" + b",".join(b'{"brokerName":"b","queueId":%d}:%d' % (n, n) for n in range(2_000)) + b"}")
    assert len(set(map(hash, objects))) > 1_900
    modulus = 2**61 - 1  # Python's hash of an integer is its remainder
    integers = loads(b"{" + b",".join(b"%d:1" % (n * modulus) for n in range(2_000)) + b"}")
    assert len(integers) == 2_000
    assert len(set(map(hash, integers))) > 1_900


def test_an_object_key_may_hold_anything() -> None:
    (key,) = loads(b'{{"a":1,2:[3],"c":{"d":null}}:4}')
    assert key == {"a": 1, 2: [3], "c": {"d": None}}


@given(noise=st.text(st.sampled_from("{}[]:,\"'0a\\u.$ "), max_size=30))
def test_noise(noise: str) -> None:
    try:
        loads_dialect(noise.encode())
    except InvalidRequestError:
        return


class Inner(msgspec.Struct):
    count: int = 5
    names: list[str] = msgspec.field(default_factory=list)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{}", Inner()),
        (b'{"count":null,"names":null}', Inner()),
        (b'{"count":"7","unknown":{"x":[]}}', Inner(7)),
        (b'{"names":[1,true,null,1.50]}', Inner(5, ["1", "true", "1.50"])),
        (b"{count:7,names:['a']}", Inner(7, ["a"])),
        (b'{"names":["a"],"more":{"$ref":"$.names"}}', Inner(5, ["a"])),
    ],
)
def test_structures_are_tolerant(text: bytes, expected: Inner) -> None:
    assert loads_as(text, Inner) == expected


@pytest.mark.parametrize("text", [b"[]", b'{"count":"x"}', b'{"names":7}', b"7", b""])
def test_values_of_a_wrong_type_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        loads_as(text, Inner)
