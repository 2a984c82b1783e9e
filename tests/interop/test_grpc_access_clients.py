"""Official gRPC clients that sign, over TLS, through a proxy to a broker; nothing else is taken on any port.

The proxy reads its own keys, as RocketMQ's does, from `rmq-proxy.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.full_cases import full
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_access import PROXY_ACCESS
from tests.interop.grpc_programs import GrpcProgram, make_places_by, run_scenario
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgentError
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.interop.secured import APP, Secured, denials_in, secured_daemons
from tests.waiting import wait_until
from thermocline.client import Credentials
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc-access")

TOPIC, GROUP = "SecuredNORMAL", "secured-group"


@pytest.fixture(scope="module")
def secured(new_module_folder: Callable[[str], Path]) -> Iterator[Secured]:
    """A NameServer and a broker, with a topic of each type and groups."""
    with secured_daemons(new_module_folder("grpc-secured"), more=BROKER_SETTINGS) as running:
        with running.admin() as admin:
            for prefix in ("Java", "Go", "Node", "Secured"):
                make_places_by(admin, prefix)
            admin.create_topic("Python", queue_nums=4, attributes={"message.type": "NORMAL"})
        yield running


@pytest.fixture(scope="module")
def audit_path(new_module_folder: Callable[[str], Path]) -> Path:
    """The proxy's audit log."""
    return new_module_folder("grpc-secured-proxy") / "audit.log"


@pytest.fixture(scope="module")
def endpoint(secured: Secured, audit_path: Path) -> Iterator[str]:
    """Where the proxy serves."""
    folder = audit_path.parent
    certificate, key = secured.files.authority.issue("p.pem", "p.key", subject="proxy", addresses=["127.0.0.1"])
    own_certificate, own_key = secured.files.client
    config = folder / "rmq-proxy.json"
    config.write_text(
        json.dumps(
            {
                **PROXY_ACCESS,
                "tlsCertPath": str(certificate),
                "tlsKeyPath": str(key),
                "tls.server.mode": "enforcing",
                "tls.enable": True,
                "tls.client.trustCertPath": str(secured.files.authority.path),
                "tls.client.certPath": str(own_certificate),
                "tls.client.keyPath": str(own_key),
                "auditLogPath": str(audit_path),
            }
        )
    )
    config.chmod(0o600)
    with running_proxy(folder, namesrv=secured.namesrv, config=config) as (address, process):
        yield address
        assert "secrets in" not in process.output()


SCENARIOS_TRIED = [
    "push",
    *full("transaction", "simple", "retry", "fifo", "delay", "check"),
]
"""Signatures are the same in each: all of them are tried before a release."""


@pytest.mark.parametrize("scenario", SCENARIOS_TRIED)
@pytest.mark.parametrize("language", [pytest.param("java", marks=pytest.mark.java), "go", "node"])
def test_a_client_signs(
    request: pytest.FixtureRequest, secured: Secured, endpoint: str, tmp_path: Path, language: str, scenario: str
) -> None:
    program: GrpcProgram = request.getfixturevalue(f"{language}_grpc")
    run_scenario(program, endpoint, scenario, home=tmp_path, security="tls", environment=signing(secured, APP))


@pytest.mark.java
def test_the_java_client_with_a_wrong_secret_does_not_start(
    secured: Secured, endpoint: str, java_grpc: GrpcProgram, tmp_path: Path
) -> None:
    wrong = signing(secured, Credentials(access_key=APP.access_key, secret_key="wrong"))
    with pytest.raises(AssertionError, match="check signature failed"):
        run_scenario(java_grpc, endpoint, "simple", home=tmp_path, security="tls", environment=wrong)


def signing(secured: Secured, credentials: Credentials) -> dict[str, str]:
    """The environment of a program that signs; Node checks the proxy's certificate."""
    return {
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(secured.files.authority.path),
        "INTEROP_ACCESS_KEY": credentials.access_key,
        "INTEROP_SECRET_KEY": credentials.secret_key,
    }


# -- Python ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agent(secured: Secured, new_module_folder: Callable[[str], Path]) -> Iterator[ForeignAgent]:
    """Clients of the user `app`."""
    with signing_agent(secured, new_module_folder("grpc-secured-python"), APP) as running:
        yield running


def signing_agent(
    secured: Secured, folder: Path, credentials: Credentials | None
) -> AbstractContextManager[ForeignAgent]:
    """An agent whose clients sign, and connect by TLS."""
    wheels = have(ROCKETMQ_GRPC_PYTHON.find)
    return grpc_python_agent(
        wheels, folder, authority=secured.files.authority.path, credentials=credentials, is_tls=True
    )


def received(agent: ForeignAgent, name: str, count: int) -> list[str]:
    """Bodies of so many messages, acknowledged."""
    bodies: list[str] = []

    def receive() -> bool:
        for message in agent.call("receive", name=name):
            bodies.append(message["body"])
            agent.call("ack", name=name, message_id=message["message_id"])
        return len(bodies) >= count

    wait_until(receive, what=f"{count} messages are received")
    return bodies


def test_the_python_client_signs(agent: ForeignAgent, endpoint: str) -> None:
    topic = "Python"
    agent.call("start_simple", name="python-simple", endpoint=endpoint, topic=topic, group="python-simple")
    agent.call("start_push", name="python-push", endpoint=endpoint, topic=topic, group="python-push")
    agent.call("start_producer", name="python-producer", endpoint=endpoint, topics=[topic])
    sent = [f"python-{number}" for number in range(20)]
    agent.call("send", name="python-producer", topic=topic, messages=[{"body": body} for body in sent])
    assert sorted(received(agent, "python-simple", 20)) == sorted(sent)
    assert sorted(message["body"] for message in agent.taken("python-push", count=20)) == sorted(sent)
    half = {"topic": "SecuredTRANSACTION", "transaction": "python", "body": "rollback it"}
    agent.call("start_producer", name="python-halves", endpoint=endpoint, topics=["SecuredTRANSACTION"], checks=True)
    agent.call("send_half", name="python-halves", **half)
    wait_until(lambda: agent.call("checked", count=1, timeout_ms=1_000), what="the broker's question comes")
    for name in ("python-simple", "python-push", "python-producer", "python-halves"):
        agent.call("stop", name=name)


WRONG: dict[str, Credentials | None] = {
    "wrong secret": Credentials(access_key="app", secret_key="wrong"),
    "unknown user": Credentials(access_key="stranger", secret_key="wrong"),
    "no keys": None,
}
REASONS = {
    "wrong secret": "check signature failed.",
    "unknown user": "User:stranger is not found.",
    "no keys": "username cannot be null.",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_python_client_without_valid_keys_is_refused(
    secured: Secured, endpoint: str, audit_path: Path, tmp_path: Path, name: str
) -> None:
    """This client starts all the same; its first send fails."""
    with signing_agent(secured, tmp_path, WRONG[name]) as stranger:
        stranger.call("start_producer", name="producer", endpoint=endpoint, topics=[TOPIC])
        with pytest.raises(JavaAgentError):
            stranger.call("send", name="producer", topic=TOPIC, messages=[{"body": "forged"}])
    keys = WRONG[name]
    named = None if keys is None else keys.access_key
    wait_until(lambda: REASONS[name] in {line["reason"] for line in denials_in(audit_path, named)}, what="it is noted")


def test_a_consumer_without_the_right_to_its_group_gets_nothing(
    secured: Secured, endpoint: str, audit_path: Path, tmp_path: Path
) -> None:
    user = Credentials(access_key="no-group", secret_key="the secret of no-group")
    with secured.admin() as admin:
        admin.create_user(user.access_key, user.secret_key)
        admin.set_acl("User:no-group", [f"Topic:{TOPIC}"], ["Sub"])
    with signing_agent(secured, tmp_path, user) as running:
        running.call("start_simple", name="simple", endpoint=endpoint, topic=TOPIC, group="not-its-group")
        with pytest.raises(
            JavaAgentError, match="40100, User:no-group has no permission to access Group:not-its-group"
        ):
            running.call("receive", name="simple")
    wait_until(
        lambda: {line["request"] for line in denials_in(audit_path, "no-group")} >= {"Telemetry", "ReceiveMessage"},
        what="both refusals are noted",
    )
    assert all(line["resource"] == "Group:not-its-group" for line in denials_in(audit_path, "no-group"))


def test_a_policy_that_changes_while_a_consumer_runs(
    secured: Secured, agent: ForeignAgent, endpoint: str, audit_path: Path, tmp_path: Path
) -> None:
    """It gets nothing from then on, and everything when the right is given back: no message is lost."""
    topic, group = "Changing", "changing-group"
    user = Credentials(access_key="changing", secret_key="the secret of changing")

    def denials() -> int:
        return len(denials_in(audit_path, "changing"))

    with secured.admin() as admin, signing_agent(secured, tmp_path, user) as running:
        admin.create_topic(topic, queue_nums=1, attributes={"message.type": "NORMAL"})
        admin.create_user(user.access_key, user.secret_key)
        for resource in (f"Topic:{topic}", f"Group:{group}"):
            admin.set_acl("User:changing", [resource], ["Sub"])
        agent.call("start_producer", name="producer", endpoint=endpoint, topics=[topic])
        running.call("start_push", name="push", endpoint=endpoint, topic=topic, group=group)
        agent.call("send", name="producer", topic=topic, messages=[{"body": "before"}])
        assert [message["body"] for message in running.taken("push", count=1)] == ["before"]
        admin.delete_acl("User:changing")
        wait_until(denials, what="the consumer is refused", interval_s=0.05)
        agent.call("send", name="producer", topic=topic, messages=[{"body": "after"}])
        count = denials()
        wait_until(lambda: denials() >= count + 3, what="it goes on asking")
        assert running.call("received", name="push", count=0, timeout_ms=0) == []
        for resource in (f"Topic:{topic}", f"Group:{group}"):
            admin.set_acl("User:changing", [resource], ["Sub"])
        assert [message["body"] for message in running.taken("push", count=1)] == ["after"]
        running.call("stop", name="push")
        agent.call("stop", name="producer")
