"""The largest messages that are taken, and those one byte larger, as RocketMQ's end-to-end suite tries them; and what
a route's request may hold.

Covers `proxy/grpc/service/validation.py`, `proxy/grpc/service/sending.py` and `proxy/grpc/service/routes.py`;
docs/grpc-cases.md has the suite's list.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.proxy.proxy_under_test import (
    GROUP,
    ProxyUnderTest,
    make_topics,
    message,
    proxy_before,
    resource,
    send_request,
)
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import Code, messages

BODY_BYTES_MAX = 4 << 20
PROPERTIES_BYTES_MAX = 16_384
TYPES = ("Normal", "Fifo", "Delay", "Transaction")


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
async def proxy(broker: FakeBroker) -> AsyncIterator[ProxyUnderTest]:
    async with proxy_before(broker) as running:
        yield running


def message_of(topic: str, *, body: bytes = b"body", properties: dict[str, str] | None = None, **system: Any) -> Any:
    """A message of the type of a topic that is called after its type."""
    of_type = {
        "Normal": {},
        "Fifo": {"message_group": "g"},
        "Delay": {"delivery_timestamp": messages.Timestamp(seconds=int(time.time()) + 10)},
        "Transaction": {"message_type": 4},
    }
    made = message(topic, body=body, **of_type[topic], **system)
    made.user_properties.update(properties or {})
    return made


async def code_of(proxy: ProxyUnderTest, made: Any) -> int:
    answer = await proxy.call("SendMessage", send_request(made))
    return int(answer.status.code)


@pytest.mark.parametrize("topic", TYPES)
async def test_the_largest_body_of_each_type(proxy: ProxyUnderTest, topic: str) -> None:
    assert await code_of(proxy, message_of(topic, body=b"x" * BODY_BYTES_MAX)) == Code.OK
    assert await code_of(proxy, message_of(topic, body=b"x" * (BODY_BYTES_MAX + 1))) == Code.MESSAGE_BODY_TOO_LARGE


@pytest.mark.parametrize("topic", ["Normal", "Fifo"])
async def test_the_largest_body_goes_with_the_largest_properties(proxy: ProxyUnderTest, topic: str) -> None:
    properties = {"k": "v" * (PROPERTIES_BYTES_MAX - 1)}
    assert await code_of(proxy, message_of(topic, body=b"x" * BODY_BYTES_MAX, properties=properties)) == Code.OK


LARGEST: dict[str, dict[str, Any]] = {
    "a key": {"keys": ["k" * PROPERTIES_BYTES_MAX]},
    "a tag": {"tag": "t" * PROPERTIES_BYTES_MAX},
    "a property": {"properties": {"k": "v" * (PROPERTIES_BYTES_MAX - 1)}},
    "a property, a key and a tag": {"keys": ["k" * 5_000], "tag": "t" * 5_000, "properties": {"p": "v" * 6_383}},
    "128 properties": {"properties": {f"k{number}": "v" for number in range(128)}},
}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "a key": {"keys": ["k" * (PROPERTIES_BYTES_MAX + 1)]},
    "a tag": {"tag": "t" * (PROPERTIES_BYTES_MAX + 1)},
    "a property": {"properties": {"k": "v" * PROPERTIES_BYTES_MAX}},
    "a property, a key and a tag": {"keys": ["k" * 5_000], "tag": "t" * 5_000, "properties": {"p": "v" * 6_384}},
    "128 properties": {"properties": {f"k{number}": "v" for number in range(129)}},
}


@pytest.mark.parametrize("what", LARGEST)
async def test_the_largest_key_tag_and_properties(proxy: ProxyUnderTest, what: str) -> None:
    assert await code_of(proxy, message_of("Normal", **LARGEST[what])) == Code.OK
    assert await code_of(proxy, message_of("Normal", **TOO_LARGE[what])) != Code.OK


TEXTS = {
    "tag": {"tag": "中国"},
    "tag with a special character": {"tag": "*.?+&^%$#@!"},
    "keys": {"keys": ["中国", "two", "three"]},
    "property": {"properties": {"ключ": "表情 😀", "special": "!@#$%^&*()"}},
}


@pytest.mark.parametrize("what", TEXTS)
async def test_texts_of_other_alphabets_are_taken(broker: FakeBroker, proxy: ProxyUnderTest, what: str) -> None:
    assert await code_of(proxy, message_of("Normal", **TEXTS[what])) == Code.OK
    properties = broker.messages("Normal")[-1].properties
    expected = TEXTS[what]
    assert properties.get("TAGS") == expected.get("tag")
    assert properties.get("KEYS") == (" ".join(expected["keys"]) if "keys" in expected else None)
    assert expected.get("properties", {}).items() <= properties.items()


@pytest.mark.parametrize("name", ["QueryRoute", "QueryAssignment"])
async def test_what_an_answer_repeats_for_each_queue_is_small(proxy: ProxyUnderTest, name: str) -> None:
    request_class = getattr(messages, f"{name}Request")
    request = request_class(topic=resource("Normal", "n" * 255), endpoints=messages.Endpoints(scheme=3))
    if name == "QueryAssignment":
        request.group.name = GROUP
    for number in range(64):
        request.endpoints.addresses.add(host=f"proxy-{number}.example.com", port=8081)
    answer = await proxy.call(name, request)
    assert answer.status.code == Code.OK
    request.endpoints.addresses.add(host="h" * 4_096, port=8081)
    assert (await proxy.call(name, request)).status.code == Code.ILLEGAL_ACCESS_POINT
    del request.endpoints.addresses[:]
    request.topic.resource_namespace = "n" * 2_048
    assert (await proxy.call(name, request)).status.code == Code.ILLEGAL_TOPIC
