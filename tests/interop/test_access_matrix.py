"""Official clients and our SDK on a broker with access control: kind of client by kind of refusal, and what is allowed.

Each is refused with the official answer, code 16 and its sentence, where its key, right or address is wrong; each
produces and consumes where they are right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import Daemons, thermocline_daemons
from tests.interop.go_agent import GoAgent
from tests.interop.java_agent import JavaAgent, JavaAgentError, JavaClients, java_agent
from tests.waiting import wait_until
from thermocline.client import AdminClient, Credentials, Message, MQError, Producer, PushConsumer
from tooling.java_libraries import find_jars
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.xdist_group("access-matrix")]

ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
INNER = {"accessKey": "inner", "secretKey": "the-key-of-brokers"}
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(INNER),
}
TOPIC, GROUP = "Guarded", "GuardedGroup"
CLIENTS = ("java5", "java4", "go", "sdk")
KEYS: dict[str, tuple[dict[str, str], str]] = {
    "no user": ({}, "username cannot be null."),
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
COUNT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A broker with users, and the clients."""

    daemons: Daemons
    directory: Path
    agents: dict[str, JavaAgent]

    @property
    def namesrv(self) -> str:
        return self.daemons.namesrv

    def denials(self, user: str | None) -> list[dict[str, Any]]:
        """The denials of a user in the audit log, which is written a little after the answers."""
        (path,) = self.directory.rglob("audit.log")
        lines = path.read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == "denied" and line.get("user") == user]

    def produce(self, client: str, keys: dict[str, str], name: str, count: int = 1) -> None:
        """Send; JavaAgentError or MQError when it is refused."""
        if client == "sdk":
            with Producer(
                namesrv=self.namesrv,
                group=f"{name}-producers",
                credentials=credentials(keys),
                retry_times_when_send_failed=0,
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


def credentials(keys: dict[str, str]) -> Credentials | None:
    return Credentials(**keys) if keys else None


@pytest.fixture(scope="module")
def guarded(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, go_agent_process: GoAgent, module_folder: Path
) -> Iterator[Guarded]:
    software_4 = replace(official_software, jars=have(lambda: find_jars(JavaClients.V4.jars_name)))
    directory = module_folder / "broker"
    with (
        thermocline_daemons(directory, settings=SETTINGS) as daemons,
        java_agent(software_4, module_folder / "java-4", clients=JavaClients.V4) as java_4,
    ):
        with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as admin:
            admin.create_topic(TOPIC, queue_nums=2)
            for name in ("may", "may-not", "from-afar"):
                admin.create_user(name, f"key-of-{name}")
            rights = (["Pub", "Sub"], [f"Topic:{TOPIC}", "Group:*"])
            admin.set_acl("User:may", rights[1], rights[0])
            admin.set_acl("User:from-afar", rights[1], rights[0], source_ips=["10.0.0.0/8"])
        agents = {"java5": java_agent_process, "java4": java_4, "go": go_agent_process}
        yield Guarded(daemons=daemons, directory=directory, agents=agents)


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
    name = f"{GROUP}-refused-{client}-{refusal.replace(' ', '-')}"
    user = keys.get("access_key")
    before = len(guarded.denials(user))

    def is_refused() -> bool:
        new = guarded.denials(user)[before:]
        return any(line["request"] == "HEART_BEAT" for line in new) and len(new) >= 2

    if client == "sdk":
        received: list[Any] = []
        consumer = PushConsumer(namesrv=guarded.namesrv, group=name, credentials=credentials(keys))
        consumer.subscribe(TOPIC)
        consumer.register_listener(lambda messages, context: received.extend(messages))
        with consumer:
            wait_until(is_refused, what="two requests of the consumer are refused")
        assert received == []
    else:
        agent = guarded.agents[client]
        agent.call("start_push_consumer", name=name, namesrv=guarded.namesrv, group=name, topics={TOPIC: "*"}, **keys)
        wait_until(is_refused, what="two requests of the consumer are refused")
        assert agent.stop_consumer(name) == []
    reasons = {line["reason"] for line in guarded.denials(user)[before:]}
    wanted = text if refusal in ("no user", "wrong signature") else "no matched policies."
    assert reasons == {wanted}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_allowed_is_produced_and_consumed(guarded: Guarded, client: str) -> None:
    name = f"{GROUP}-allowed-{client}"
    if client == "sdk":
        received: list[Any] = []
        consumer = PushConsumer(namesrv=guarded.namesrv, group=name, credentials=credentials(ALLOWED))
        consumer.subscribe(TOPIC)
        consumer.register_listener(lambda messages, context: received.extend(messages))
        with consumer:
            guarded.produce(client, ALLOWED, name, COUNT)
            wait_until(lambda: len(received) >= COUNT, what="what was sent is consumed")
        return
    agent = guarded.agents[client]
    agent.call("start_push_consumer", name=name, namesrv=guarded.namesrv, group=name, topics={TOPIC: "*"}, **ALLOWED)
    guarded.produce(client, ALLOWED, name, COUNT)
    assert len(agent.received(name, count=COUNT)) >= COUNT
    agent.stop_consumer(name)
