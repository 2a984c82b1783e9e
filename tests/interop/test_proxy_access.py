"""Access control of a broker behind the remoting port: clients' own signatures decide, the proxy lends no rights."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.interop.cluster import thermocline_daemons
from tests.interop.proxy_daemons import remoting_address, running_proxy
from tests.waiting import wait_until
from thermocline.client import (
    AdminClient,
    ConsumeFromWhere,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from thermocline.remoting.errors import MQError

ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
WRONG = Credentials(access_key="root", secret_key="another-key-of-root")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "the-key-of-brokers"}),
}
TOPIC = "Guarded"


@pytest.fixture(scope="module", params=["without credentials", "with credentials"])
def proxy(request: pytest.FixtureRequest, new_module_folder: Callable[[str], Path]) -> Iterator[str]:
    """A proxy before a broker that asks for signatures; one that has rights of its own must not lend them."""
    folder: Path = new_module_folder("guarded")
    with thermocline_daemons(folder, settings=SETTINGS) as daemons:
        with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as admin:
            admin.create_topic(TOPIC, queue_nums=2)
        with contextlib.ExitStack() as stack:
            with pytest.MonkeyPatch.context() as environment:  # of the proxy, not of clients
                if request.param == "with credentials":
                    environment.setenv("THERMOCLINE_ACCESS_KEY", ROOT.access_key)
                    environment.setenv("THERMOCLINE_SECRET_KEY", ROOT.secret_key)
                _, process = stack.enter_context(running_proxy(folder / "proxy", namesrv=daemons.namesrv))
            yield remoting_address(process)


def send(proxy: str, credentials: Credentials | None, body: bytes) -> None:
    with Producer(group="senders", namesrv=proxy, credentials=credentials, retry_times_when_send_failed=0) as producer:
        producer.send(Message(TOPIC, body))


def test_signed_clients_send_and_consume(proxy: str) -> None:
    received: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage], _context: object) -> None:
        received.extend(bytes(message.body) for message in messages)

    consumer = PushConsumer(
        group="guarded-group",
        namesrv=proxy,
        credentials=ROOT,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    consumer.register_listener(listen)
    with consumer:
        for number in range(5):
            send(proxy, ROOT, b"%d" % number)
        wait_until(lambda: len(received) >= 5, what="the messages")
    assert sorted(received) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("credentials", [None, WRONG], ids=["unsigned", "wrong key"])
def test_others_are_refused_by_the_broker(proxy: str, credentials: Credentials | None) -> None:
    with pytest.raises(MQError):
        send(proxy, credentials, b"not allowed")
