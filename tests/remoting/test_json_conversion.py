"""JSON values of other types than a structure's members: accepted and refused values, beside the official decoder in
`tests/interop/test_official_decoder.py`."""

from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from thermocline.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.header_codec import Int, Long
from thermocline.remoting.json_conversion import EXTENSION, convert, enum_names, number_from_text
from thermocline.remoting.json_dialect import loads_as


class Inner(msgspec.Struct, rename="camel"):
    text_value: str = "default"


class Sample(msgspec.Struct, kw_only=True, rename="camel"):
    count: Int = 5
    offset: Long = 6
    is_on: bool = True
    name: str = "name"
    kind: Annotated[str, enum_names("FIRST", "SECOND_ONE")] = "FIRST"
    rate: float = 1.5
    tags: list[str] = msgspec.field(default_factory=list)
    codes: set[Int] = msgspec.field(default_factory=set)
    inner: Inner = msgspec.field(default_factory=Inner)
    maybe: Inner | None = None
    inners: list[Inner] = msgspec.field(default_factory=list)
    table: dict[Int, str] = msgspec.field(default_factory=dict)
    extension: Annotated[Long | None, EXTENSION] = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"count":"7","offset":"-8"}', {"count": 7, "offset": -8}),
        ('{"count":7.9,"offset":"1e3"}', {"count": 7, "offset": 1000}),
        ('{"count":true,"offset":[3]}', {"count": 1, "offset": 3}),
        ('{"count":null,"offset":""}', {"count": 5, "offset": 6}),
        ('{"count":2147483648.5,"offset":1e30}', {"count": -(2**31), "offset": 2**63 - 1}),
        ('{"count":"1,000"}', {"count": 1000}),
        ('{"isOn":0}', {"is_on": False}),
        ('{"isOn":2}', {"is_on": False}),
        ('{"isOn":"FALSE"}', {"is_on": False}),
        ('{"isOn":"N"}', {"is_on": False}),
        ('{"isOn":null}', {"is_on": True}),
        ('{"name":7}', {"name": "7"}),
        ('{"name":1.50}', {"name": "1.50"}),
        ('{"name":1e3}', {"name": "1000.0"}),
        ('{"name":12345678e3}', {"name": "1.2345678E10"}),
        ('{"name":false}', {"name": "false"}),
        ('{"name":{"b":1,"a":[1.50,null,true]}}', {"name": '{"b":1,"a":[1.50,null,true]}'}),
        ('{"name":["x"]}', {"name": "x"}),
        ('{"name":""}', {"name": ""}),
        ('{"kind":1}', {"kind": "SECOND_ONE"}),
        ('{"kind":"1"}', {"kind": "SECOND_ONE"}),
        ('{"kind":"second-one"}', {"kind": "SECOND_ONE"}),
        ('{"kind":"THIRD"}', {"kind": "FIRST"}),
        ('{"rate":"2.5"}', {"rate": 2.5}),
        ('{"rate":null}', {"rate": 1.5}),
        ('{"tags":"a"}', {"tags": ["a"]}),
        ('{"tags":[1,null,true]}', {"tags": ["1", "true"]}),
        ('{"tags":"null"}', {"tags": ["null"]}),
        ('{"tags":null}', {"tags": []}),
        ('{"codes":"null"}', {"codes": set()}),
        ('{"codes":["1",2,null]}', {"codes": {1, 2}}),
        ('{"codes":7}', {"codes": {7}}),
        ('{"inner":null,"maybe":null}', {"inner": Inner(), "maybe": None}),
        ('{"inners":{"textValue":1}}', {"inners": [Inner("1")]}),
        ('{"inners":[null,{}]}', {"inners": [Inner()]}),
        ('{"table":{0:"a","1":2,"2":null}}', {"table": {0: "a", 1: "2"}}),
        ('{"table":{0:"a","0":null}}', {"table": {}}),
        ('{"table":{0:null,"0":"a"}}', {"table": {0: "a"}}),
        ('{"extension":"8"}', {"extension": 8}),
        ('{"extension":{"x":[7]},"count":"9"}', {"extension": None, "count": 9}),
        ('{"extension":"seven"}', {"extension": None}),
        ('{"unknown":[{"x":1}],"Count":9}', {"count": 5}),
    ],
)
def test_members_of_other_types(text: str, expected: dict[str, Any]) -> None:
    sample = loads_as(text.encode(), Sample)
    assert {name: getattr(sample, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ('{"count":"x"}', "count"),
        ('{"count":2147483648}', "count"),
        ('{"offset":9223372036854775808}', "offset"),
        ('{"offset":{}}', "offset"),
        ('{"isOn":"2"}', "isOn"),
        ('{"isOn":{}}', "isOn"),
        ('{"kind":2}', "kind"),
        ('{"kind":-1}', "kind"),
        ('{"kind":true}', "kind"),
        ('{"tags":7}', "tags"),
        ('{"inner":7}', "inner"),
        ('{"inner":[]}', "inner"),
        ('{"inners":[{"textValue":"a"},7]}', "inners.1"),
        ('{"table":[]}', "table"),
        ('{"table":{"x":"a"}}', "table.x"),
    ],
)
def test_an_invalid_member_is_named(text: str, member: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{member}: "):
        loads_as(text.encode(), Sample)


@pytest.mark.parametrize("text", ["null", '""', "[]", "7", "true"])
def test_a_body_is_an_object(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        loads_as(text.encode(), Sample)


@pytest.mark.parametrize("number", ["9" * 5_000, "0." + "9" * 5_000, "1e" + "9" * 50, f'"{"9" * 5_000}"'])
def test_long_numbers_cost_nothing(number: str) -> None:
    with pytest.raises(InvalidRequestError):
        loads_as(b'{"count":%s}' % number.encode(), Sample)


def test_numbers_of_texts() -> None:
    assert number_from_text("007") == 7
    assert number_from_text("-1.50") == Decimal("-1.50")
    assert number_from_text(".5e1") == 5.0
    with pytest.raises(ValueError, match="x"):
        number_from_text("x")


def test_null_never_makes_a_topic_unusable() -> None:
    """Release 5.5.0 reads null as 0: a topic that can be neither read nor written."""
    assert convert({"topicName": "t", "perm": None, "readQueueNums": None}, TopicConfig).perm == 6
    assert convert({"groupName": "g", "retryMaxTimes": None}, SubscriptionGroupConfig).retry_max_times == 16
