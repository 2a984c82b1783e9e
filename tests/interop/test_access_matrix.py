"""Official clients and our SDK on daemons with TLS and access control: kind of client by kind of refusal, and what is
allowed.

Each is refused with the official answer, code 16 and its sentence, where its key, right or address is wrong, and gets
no connection where its certificate, or the server's, is. Each produces and consumes where they are right, over TLS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.interop.go_agent import GoAgent
from tests.interop.java_agent import JavaAgent, JavaAgentError
from tests.interop.secured import APP, Secured, secured_daemons
from tests.waiting import wait_until
from thermocline.client import Credentials, Message, MQError, Producer, PushConsumer, TlsOptions, UnavailableError

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.xdist_group("secured")]

TOPIC, GROUP = "Guarded", "GuardedGroup"
CLIENTS = ("java5", "java4", "go", "sdk")
UNSIGNED = {"access_key": "", "secret_key": ""}
KEYS: dict[str, tuple[dict[str, str], str]] = {
    "no user": (UNSIGNED, "username cannot be null."),
    "wrong signature": ({"access_key": "may", "secret_key": "not-the-key"}, "check signature failed."),
    "no right": (
        {"access_key": "may-not", "secret_key": "key-of-may-not"},
        "User:may-not has no permission to access",
    ),
    "wrong address": (
        {"access_key": "from-afar", "secret_key": "key-of-from-afar"},
        "User:from-afar has no permission to access",
    ),
}
ALLOWED = {"access_key": "may", "secret_key": "key-of-may", "security_token": "a-token"}
FAULTS = ("plain", "foreign certificate", "foreign server")
"""Of certificates: no TLS at all; the client's is of another authority; the client trusts another authority only."""

UNCHECKED = {("go", "foreign certificate"), ("go", "foreign server")}
"""The Go client has no certificate to show, and checks none."""

COUNT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The daemons with users, and the clients."""

    secured: Secured
    agents: dict[str, JavaAgent]

    @property
    def namesrv(self) -> str:
        return self.secured.namesrv

    def produce(self, client: str, keys: dict[str, str], name: str, count: int = 1) -> None:
        """Send; JavaAgentError or MQError when it is refused."""
        if client == "sdk":
            with Producer(
                namesrv=self.namesrv,
                group=f"{name}-producers",
                credentials=credentials(keys),
                retry_times_when_send_failed=0,
                tls=self.secured.tls,
            ) as producer:
                for index in range(count):
                    producer.send(Message(TOPIC, b"%d" % index))
            return
        agent = self.agents[client]
        try:
            answers = agent.call(
                "produce",
                kind="async",  # of other sends, Java clients hide the answer in an exception's cause
                name=name,
                group=f"{name}-producers",
                namesrv=self.namesrv,
                topic=TOPIC,
                prefix=TOPIC,
                count=count,
                retries=0,
                **keys,
            )
        finally:
            agent.call("stop_producer", name=name)
        for answer in answers:
            if isinstance(answer, str):
                raise JavaAgentError(answer)

    @contextlib.contextmanager
    def consumer(self, client: str, keys: dict[str, str], name: str) -> Iterator[list[Any]]:
        """A push consumer; what it has received is in the list, when it has stopped."""
        received: list[Any] = []
        if client == "sdk":
            consumer = PushConsumer(
                namesrv=self.namesrv, group=name, credentials=credentials(keys), tls=self.secured.tls
            )
            consumer.subscribe(TOPIC)
            consumer.register_listener(lambda messages, context: received.extend(messages))
            with consumer:
                yield received
            return
        agent = self.agents[client]
        agent.call("start_push_consumer", name=name, namesrv=self.namesrv, group=name, topics={TOPIC: "*"}, **keys)
        yield received
        received += agent.stop_consumer(name)


def credentials(keys: dict[str, str]) -> Credentials | None:
    return Credentials(**keys) if keys["access_key"] else None


@pytest.fixture(scope="module")
def agents(secured_java: JavaAgent, secured_java_4: JavaAgent, secured_go: GoAgent) -> dict[str, JavaAgent]:
    return {"java5": secured_java, "java4": secured_java_4, "go": secured_go}


@pytest.fixture(scope="module")
def guarded(secured: Secured, agents: dict[str, JavaAgent], module_folder: Path) -> Iterator[Guarded]:
    """The broker refuses: the NameServer gives routes to all."""
    with secured_daemons(module_folder, files=secured.files, routes_for_all=True) as running:
        with running.admin() as admin:
            admin.create_topic(TOPIC, queue_nums=2)
            for name in ("may", "may-not", "from-afar"):
                admin.create_user(name, f"key-of-{name}")
            rights = (["Pub", "Sub"], [f"Topic:{TOPIC}", "Group:*"])
            admin.set_acl("User:may", rights[1], rights[0])
            admin.set_acl("User:from-afar", rights[1], rights[0], source_ips=["10.0.0.0/8"])
        yield Guarded(secured=running, agents=agents)


@pytest.mark.parametrize("refusal", KEYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_producer_is_refused(guarded: Guarded, client: str, refusal: str) -> None:
    keys, text = KEYS[refusal]
    with pytest.raises((JavaAgentError, MQError)) as refused:
        guarded.produce(client, keys, f"refused-{client}-{refusal.replace(' ', '-')}")
    assert text in str(refused.value)


@pytest.mark.parametrize("refusal", KEYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_consumer_is_refused(guarded: Guarded, client: str, refusal: str) -> None:
    """It starts, and gets nothing: each of its requests is refused."""
    keys, text = KEYS[refusal]
    user = keys["access_key"] or None
    before = len(guarded.secured.denials(user))

    def is_refused() -> bool:
        new = guarded.secured.denials(user)[before:]
        return any(line["request"] == "HEART_BEAT" for line in new) and len(new) >= 2

    with guarded.consumer(client, keys, f"{GROUP}-refused-{client}-{refusal.replace(' ', '-')}") as received:
        wait_until(is_refused, what="two requests of the consumer are refused")
    assert received == []
    reasons = {line["reason"] for line in guarded.secured.denials(user)[before:]}
    assert reasons == {text if refusal in ("no user", "wrong signature") else "no matched policies."}


@pytest.mark.parametrize("refusal", ["no user", "wrong signature"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_name_server_refuses(secured: Secured, agents: dict[str, JavaAgent], client: str, refusal: str) -> None:
    """Official clients then know no route."""
    keys, text = KEYS[refusal]
    if keys["access_key"]:
        keys = {"access_key": APP.access_key, "secret_key": "not-the-key"}
    user = keys["access_key"] or None
    before = len(secured.name_server_denials(user))
    strict = Guarded(secured=secured, agents=agents)
    with pytest.raises((JavaAgentError, MQError)):
        strict.produce(client, keys, f"unrouted-{client}-{refusal.replace(' ', '-')}")
    new: list[dict[str, Any]] = []

    def is_noted() -> bool:
        new[:] = secured.name_server_denials(user)[before:]
        return bool(new)

    wait_until(is_noted, what="the refusal is in the NameServer's audit log")
    assert {(line["request"], line["reason"]) for line in new} == {("GET_ROUTEINFO_BY_TOPIC", text)}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_allowed_is_produced_and_consumed(guarded: Guarded, client: str) -> None:
    name = f"{GROUP}-allowed-{client}"
    with guarded.consumer(client, ALLOWED, name) as received:
        guarded.produce(client, ALLOWED, name, COUNT)
        if client == "sdk":
            wait_until(lambda: len(received) >= COUNT, what="what was sent is consumed")
        else:
            received += guarded.agents[client].received(name, count=COUNT)
    assert len(received) >= COUNT


@pytest.fixture(scope="module")
def plain_go(go_agent_process: GoAgent) -> GoAgent:
    """The released Go client, which has no TLS."""
    return go_agent_process


@pytest.mark.parametrize(
    ("client", "fault"),
    [(client, fault) for client in CLIENTS for fault in FAULTS if (client, fault) not in UNCHECKED],
)
def test_a_client_with_another_certificate_gets_no_connection(
    guarded: Guarded, plain_go: GoAgent, client: str, fault: str
) -> None:
    """Its keys are right. The daemons are not asked anything by it."""
    name = f"faulty-{client}-{fault.replace(' ', '-')}"
    files = guarded.secured.files
    authority = files.foreign if fault == "foreign server" else files.authority
    certificate, key = files.foreign_client if fault == "foreign certificate" else files.client
    if client == "sdk":
        tls = TlsOptions(ca_file=str(authority.path), cert_file=str(certificate), key_file=str(key))
        with (
            pytest.raises(UnavailableError),
            Producer(
                namesrv=guarded.namesrv, credentials=credentials(ALLOWED), tls=None if fault == "plain" else tls
            ) as producer,
        ):
            producer.send(Message(TOPIC, b"never stored"))
        return
    if client == "go":
        with pytest.raises(JavaAgentError):
            replace(guarded, agents={"go": plain_go}).produce(client, ALLOWED, name)
        return
    agent = guarded.agents[client]
    agent.call("tls", enable=fault != "plain", trust=str(authority.path), certificate=str(certificate), key=str(key))
    try:
        with pytest.raises(JavaAgentError):
            guarded.produce(client, ALLOWED, name)
    finally:
        certificate, key = files.client
        agent.call("tls", enable=True, trust=str(files.authority.path), certificate=str(certificate), key=str(key))
    guarded.produce(client, ALLOWED, f"{name}-then")
