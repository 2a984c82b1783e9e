"""A changed policy, a disabled user, a rotated key and a rotated certificate count at once for official clients and our
SDK, and clients that stay allowed keep their connections: the local ports are the same before and after.

What was acknowledged to the operator counts for the first request that begins afterwards, so no time is measured.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.java_agent import JavaAgent, JavaAgentError
from tests.interop.secured import PASSWORD, Secured
from tests.waiting import wait_until
from thermocline.client import (
    AdminClient,
    ConsumeFromWhere,
    Credentials,
    Message,
    MQError,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from thermocline.remoting.errors import PermissionDeniedError
from thermocline.remoting.tls import CHECK_INTERVAL_S

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("secured")]

COUNT = 5
_numbers = itertools.count(1)


def ports(process_id: int, address: str) -> set[int]:
    """Local ports of a process's connections to an address."""
    inodes = set()
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    wanted = int(address.rpartition(":")[2])
    found = set()
    for table in ("tcp", "tcp6"):
        for row in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:]):
            if row[3] == "01" and row[9] in inodes and int(row[2].rpartition(":")[2], 16) == wanted:
                found.add(int(row[1].rpartition(":")[2], 16))
    return found


@dataclass(kw_only=True)
class SdkUser:
    """A producer and a consumer of the SDK that sign as one user."""

    secured: Secured
    user: str
    key: str
    topic: str
    got: list[bytes] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        options = {
            "namesrv": self.secured.namesrv,
            "tls": self.secured.tls,
            "credentials": Credentials(access_key=self.user, secret_key=self.key),
        }
        self.producer = self.stack.enter_context(
            Producer(group=f"{self.user}-p", retry_times_when_send_failed=0, **options)  # type: ignore[arg-type]
        )
        consumer = PushConsumer(
            group=f"{self.user}-sdk",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **options,  # type: ignore[arg-type]
        )
        consumer.subscribe(self.topic)
        consumer.register_listener(self._add)
        self.stack.enter_context(consumer)

    def _add(self, messages: Sequence[ReceivedMessage], context: object) -> None:
        self.got += [message.body for message in messages]

    @property
    def process_id(self) -> int:
        return os.getpid()

    def send(self, text: str) -> None:
        self.producer.send(Message(self.topic, text.encode()))

    def received(self) -> list[bytes]:
        return self.got

    def stop(self) -> None:
        self.stack.close()


@dataclass(kw_only=True)
class JavaUser:
    """The same of the official client 5.5."""

    secured: Secured
    user: str
    key: str
    topic: str
    agent: JavaAgent
    got: list[bytes] = field(default_factory=list)

    @property
    def keys(self) -> dict[str, str]:
        return {"access_key": self.user, "secret_key": self.key, "namesrv": self.secured.namesrv}

    def start(self) -> None:
        self.agent.call(
            "start_push_consumer",
            name=f"{self.user}-c",
            group=f"{self.user}-java",
            topics={self.topic: "*"},
            **self.keys,
        )

    @property
    def process_id(self) -> int:
        return self.agent._process.pid

    def send(self, text: str) -> None:
        (answer,) = self.agent.call(
            "produce",
            kind="async",
            name=f"{self.user}-p",
            group=f"{self.user}-p",
            topic=self.topic,
            prefix=text,
            count=1,
            retries=0,
            **self.keys,
        )
        if isinstance(answer, str):
            raise JavaAgentError(answer)

    def received(self) -> list[bytes]:
        self.got += [message.body for message in self.agent.received(f"{self.user}-c", count=0)]
        return self.got

    def stop(self) -> None:
        self.agent.call("stop_producer", name=f"{self.user}-p")
        self.agent.stop_consumer(f"{self.user}-c")


User = SdkUser | JavaUser


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A user that something happens to, and one that stays as it is."""

    changed: User
    stays: User
    admin: AdminClient

    @property
    def address(self) -> str:
        return self.stays.secured.daemons.broker_address

    def stays_connected(self, before: set[int]) -> None:
        """The user that stays has the connections that it had, and they work."""
        text = f"after-{next(_numbers)}"
        for index in range(COUNT):
            self.stays.send(f"{text}-{index}")
        wait_until(
            lambda: sum(text.encode() in body for body in self.stays.received()) == COUNT, what="messages arrive"
        )
        assert before <= ports(self.stays.process_id, self.address)


@pytest.fixture(params=["java", "sdk"])
def pair(request: pytest.FixtureRequest, secured: Secured, secured_java: JavaAgent) -> Iterator[Pair]:
    number = next(_numbers)
    topic = f"Changes{number}"
    users: list[User] = []
    with secured.admin() as admin, ExitStack() as stack:
        admin.create_topic(topic, queue_nums=1)
        for role in ("changed", "stays"):
            user, key = f"{role}{number}", f"key-of-{role}"
            for name_servers in (False, True):
                admin.create_user(user, key, name_servers=name_servers)
                admin.set_acl(f"User:{user}", ["Topic:*", "Group:*"], ["Pub", "Sub"], name_servers=name_servers)
            one: User = (
                JavaUser(secured=secured, user=user, key=key, topic=topic, agent=secured_java)
                if request.param == "java"
                else SdkUser(secured=secured, user=user, key=key, topic=topic)
            )
            one.start()
            stack.callback(one.stop)
            users.append(one)
        yield Pair(changed=users[0], stays=users[1], admin=admin)


def begin(pair: Pair) -> set[int]:
    """Both send and receive; the ports of the user that stays."""
    others = ports(pair.stays.process_id, pair.address)
    for one in (pair.changed, pair.stays):
        one.send(f"before-{one.user}")
    for one in (pair.changed, pair.stays):
        wait_until(lambda one=one: len(one.received()) >= 2, what="both messages arrive")
    return others | ports(pair.stays.process_id, pair.address)


@pytest.mark.parametrize("change", ["policy", "status", "key"])
def test_a_change_counts_for_the_next_request(pair: Pair, change: str) -> None:
    begin(pair)
    changed, admin = pair.changed, pair.admin
    # The ports of both users: the port of the other user's waiting reads may close.
    before = ports(pair.stays.process_id, pair.address)
    if change == "policy":
        admin.set_acl(f"User:{changed.user}", ["Topic:*"], ["Pub", "Sub"], decision="Deny")
        sentence = "has no permission to access"
    elif change == "status":
        admin.update_user(changed.user, user_status="disable")
        sentence = "is disabled."
    else:
        admin.update_user(changed.user, password="another-key")
        sentence = "check signature failed."
    with pytest.raises((JavaAgentError, MQError)) as refused:
        changed.send("refused")
    assert sentence in str(refused.value)
    count = len(changed.received())
    lost = before - ports(pair.stays.process_id, pair.address)
    pair.stays_connected(before - lost)
    assert len(changed.received()) == count, "what was sent afterwards reaches the user that stays alone"
    # The only connection that may have ended is that of the other user's waiting reads.
    assert len(before - ports(pair.stays.process_id, pair.address)) <= 1
    if change == "key":
        changed.stop()
        if isinstance(changed, SdkUser):
            changed.stack = ExitStack()
        changed.key = "another-key"
        admin.update_user(changed.user, password="another-key", name_servers=True)
        changed.start()
        changed.send("with the new key")
        wait_until(lambda: b"with the new key" in b" ".join(changed.received()), what="the new key counts")


def serial_number(secured: Secured, address: str) -> bytes:
    """Of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=str(secured.files.authority.path))
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=host) as stream,
    ):
        found = stream.getpeercert()
        assert found is not None
        return str(found["serialNumber"]).encode()


def test_a_new_certificate_counts_for_new_connections(pair: Pair, secured: Secured) -> None:
    """In half a second: files are looked at every CHECK_INTERVAL_S, and count once they have stayed the same."""
    assert 2 * CHECK_INTERVAL_S < 1
    before = begin(pair)
    daemons = secured.daemons
    old = {address: serial_number(secured, address) for address in (daemons.broker_address, daemons.namesrv)}
    certificate, key = secured.files.server
    secured.files.authority.issue(
        certificate.name, key.name, subject="broker", addresses=["127.0.0.1"], password=PASSWORD
    )
    for address, number in old.items():
        wait_until(
            lambda address=address, number=number: serial_number(secured, address) != number,
            what="new connections get the new certificate",
        )
    pair.stays_connected(before)
    changed = pair.changed
    changed.send("over the connection that it had")
    assert before <= ports(pair.stays.process_id, pair.address)


def test_an_sdk_client_is_told_which_right_is_missing(secured: Secured) -> None:
    with (
        secured.admin(Credentials(access_key="app", secret_key="the-key-of-app")) as admin,
        pytest.raises(PermissionDeniedError, match="no permission to access"),
    ):
        admin.delete_topic("TBW102")
