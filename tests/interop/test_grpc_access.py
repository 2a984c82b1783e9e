"""Access control of a proxy before a real broker with users and policies: each RPC, allowed and refused.

The proxy runs in the test's loop, its clients sign by hand.

Covers `proxy/proxy_access.py`, `proxy/access/cluster_users.py`, `proxy/grpc/service/grpc_rights.py`,
`proxy/grpc/service/grpc_proof.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster import Daemons, thermocline_daemons
from tests.interop.grpc_access import BROKER_ACCESS, FORMS, INNER_TEXT, Right, make_user, secret_of, signed
from tests.interop.proxy_daemons import BROKER_SETTINGS
from tests.interop.secured import ROOT
from tests.proxy.proxy_under_test import (
    TELEMETRY,
    ProxyUnderTest,
    consumer_settings,
    message,
    producer_settings,
    proxy_before,
    resource,
    seconds,
    send_request,
)
from tests.waiting import until
from thermocline.cli.main import run
from thermocline.client import AdminClient
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.proxy.grpc.service.grpc_rights import RIGHTS
from thermocline.remoting.errors import SettingError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode

pytestmark = pytest.mark.xdist_group("interop-grpc-access")

TOPIC, GROUP = "Normal", "access-group"
SECRETS = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "inner_credentials": INNER_TEXT,
}


@pytest.fixture(scope="module")
def daemons(new_module_folder: Callable[[str], Path]) -> Iterator[Daemons]:
    """A NameServer and a broker with access control."""
    settings = {**BROKER_SETTINGS, **BROKER_ACCESS}
    with thermocline_daemons(new_module_folder("grpc-access"), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def admin(daemons: Daemons) -> Iterator[AdminClient]:
    with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as running:
        for kind in ("NORMAL", "DELAY", "TRANSACTION"):
            running.create_topic(kind.capitalize(), queue_nums=4, attributes={"message.type": kind})
        running.create_topic("Secret", queue_nums=1, attributes={"message.type": "TRANSACTION"})
        yield running


@pytest.fixture
async def proxy(daemons: Daemons, admin: AdminClient, tmp_path: Path) -> AsyncIterator[ProxyUnderTest]:
    async with proxy_before(
        daemons.namesrv, audit_path=str(tmp_path / "audit.log"), audit_file_bytes=1 << 20, **SECRETS
    ) as running:
        yield running


def audit_lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def on_queue(request: Any, topic: str = TOPIC) -> Any:
    request.message_queue.topic.name = topic
    request.message_queue.broker.name = "broker-a"
    return request


def receive_request() -> Any:
    request = messages.ReceiveMessageRequest(
        group=resource(GROUP), invisible_duration=seconds(30), batch_size=1, long_polling_timeout=seconds(0.1)
    )
    return on_queue(request)


def with_group(name: str, **more: Any) -> Any:
    return getattr(messages, f"{name}Request")(group=resource(GROUP), topic=resource(TOPIC), **more)


def termination() -> Any:
    return messages.NotifyClientTerminationRequest(group=resource(GROUP))


def heartbeat() -> Any:
    return messages.HeartbeatRequest(group=resource(GROUP), client_type=enums.ClientType.PUSH_CONSUMER)


def invisible() -> Any:
    return messages.ChangeInvisibleDurationRequest(
        group=resource(GROUP), topic=resource(TOPIC), receipt_handle="x", invisible_duration=seconds(30)
    )


PUB: Right = (f"Topic:{TOPIC}", ["Pub"])
SUB: Right = (f"Topic:{TOPIC}", ["Sub"])
GROUP_SUB: Right = (f"Group:{GROUP}", ["Sub"])
GET: Right = (f"Topic:{TOPIC}", ["Get"])
UNARY: dict[str, tuple[Callable[[], Any], list[Right], set[int]]] = {
    "SendMessage": (lambda: send_request(message()), [PUB], {Code.OK}),
    "RecallMessage": (
        lambda: messages.RecallMessageRequest(topic=resource(TOPIC), recall_handle="x"),
        [PUB],
        {Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE},
    ),
    "EndTransaction": (
        lambda: messages.EndTransactionRequest(topic=resource(TOPIC)),
        [PUB],
        {Code.INVALID_TRANSACTION_ID},
    ),
    "QueryRoute": (lambda: messages.QueryRouteRequest(topic=resource(TOPIC)), [SUB], {Code.OK}),
    "QueryAssignment": (lambda: with_group("QueryAssignment"), [SUB, GROUP_SUB], {Code.OK}),
    "AckMessage": (lambda: with_group("AckMessage"), [SUB, GROUP_SUB], {Code.INTERNAL_SERVER_ERROR}),
    "ForwardMessageToDeadLetterQueue": (
        lambda: with_group("ForwardMessageToDeadLetterQueue", receipt_handle="x"),
        [SUB, GROUP_SUB],
        {Code.INTERNAL_SERVER_ERROR},
    ),
    "ChangeInvisibleDuration": (invisible, [SUB, GROUP_SUB], {Code.INTERNAL_SERVER_ERROR}),
    "Heartbeat": (heartbeat, [GROUP_SUB], {Code.UNRECOGNIZED_CLIENT_TYPE}),
    "NotifyClientTermination": (termination, [GROUP_SUB], {Code.UNRECOGNIZED_CLIENT_TYPE}),
    "UpdateOffset": (
        lambda: on_queue(messages.UpdateOffsetRequest(group=resource(GROUP), offset=0)),
        [SUB, (f"Group:{GROUP}", ["Update"])],
        {Code.OK},
    ),
    "GetOffset": (
        lambda: on_queue(messages.GetOffsetRequest(group=resource(GROUP))),
        [GET, GROUP_SUB],
        {Code.OK, Code.OFFSET_NOT_FOUND},
    ),
    "QueryOffset": (
        lambda: on_queue(messages.QueryOffsetRequest(query_offset_policy=enums.QueryOffsetPolicy.END)),
        [GET],
        {Code.OK},
    ),
    "SyncLiteSubscription": (lambda: with_group("SyncLiteSubscription"), [SUB, GROUP_SUB], {Code.NOT_IMPLEMENTED}),
}
STREAMS: dict[str, tuple[Callable[[], Any], list[Right], set[int]]] = {
    "ReceiveMessage": (receive_request, [SUB, GROUP_SUB], {Code.OK, Code.MESSAGE_NOT_FOUND}),
    "PullMessage": (
        lambda: on_queue(messages.PullMessageRequest(group=resource(GROUP), batch_size=1)),
        [SUB, GROUP_SUB],
        {Code.OK, Code.MESSAGE_NOT_FOUND},
    ),
}


def test_every_rpc_is_tried() -> None:
    assert UNARY.keys() | STREAMS.keys() | {"Telemetry"} == RIGHTS.keys()


async def code_of(proxy: ProxyUnderTest, name: str, request: Any, metadata: dict[str, str]) -> int:
    if name in UNARY:
        return int((await proxy.call(name, request, metadata=metadata)).status.code)
    first, *_ = await proxy.peer.stream(name, request, metadata=metadata)
    return int(first.status.code)


@pytest.mark.parametrize("name", [*UNARY, *STREAMS])
async def test_an_rpc_needs_each_of_its_rights(proxy: ProxyUnderTest, admin: AdminClient, name: str) -> None:
    make_request, rights, codes = (UNARY | STREAMS)[name]
    allowed = await asyncio.to_thread(make_user, admin, *rights)
    for form in FORMS:
        assert await code_of(proxy, name, make_request(), signed(allowed, form=form)) in codes
    assert await code_of(proxy, name, make_request(), signed(ROOT.access_key, ROOT.secret_key)) in codes
    for missing in rights:
        user = await asyncio.to_thread(make_user, admin, *(right for right in rights if right != missing))
        assert await code_of(proxy, name, make_request(), signed(user)) == Code.UNAUTHORIZED
    assert await code_of(proxy, name, make_request(), signed(allowed, "another secret")) == Code.UNAUTHORIZED
    assert await code_of(proxy, name, make_request(), {}) == Code.UNAUTHORIZED
    assert await code_of(proxy, name, make_request(), signed("stranger")) == Code.UNAUTHORIZED


SETTINGS: dict[str, tuple[Any, list[Right]]] = {
    "producer": (producer_settings(TOPIC, "Delay"), [PUB, ("Topic:Delay", ["Pub"])]),
    "consumer": (consumer_settings(GROUP, TOPIC), [GROUP_SUB, SUB]),
}


@pytest.mark.parametrize("kind", SETTINGS)
async def test_settings_need_each_of_their_rights(proxy: ProxyUnderTest, admin: AdminClient, kind: str) -> None:
    settings, rights = SETTINGS[kind]
    refused = [signed("stranger"), {}]
    for missing in rights:
        user = await asyncio.to_thread(make_user, admin, *(right for right in rights if right != missing))
        refused.append(signed(user))
    for metadata in refused:
        _, answer = await proxy.connect(settings, metadata=metadata)
        await proxy.peer.done(answer)  # the stream ends, without an error of gRPC, after one command
        assert answer.status == 0
        (payload,) = answer.payloads()
        command = messages.TelemetryCommand.FromString(payload)
        assert command.status.code == Code.UNAUTHORIZED
        assert command.WhichOneof("command") is None
    assert len(proxy.server.clients) == 0
    allowed = await asyncio.to_thread(make_user, admin, *rights)
    _, answer = await proxy.connect(settings, metadata=signed(allowed))
    (payload,) = await proxy.peer.answers(answer, 1)
    assert messages.TelemetryCommand.FromString(payload).status.code == Code.OK
    assert [client.username for client in proxy.server.clients.clients()] == [allowed]


async def test_a_client_id_is_its_users_alone(proxy: ProxyUnderTest, admin: AdminClient) -> None:
    """Who guesses the id of a client can neither end it nor speak for it."""
    owner = await asyncio.to_thread(make_user, admin, GROUP_SUB, SUB)
    other = await asyncio.to_thread(make_user, admin, GROUP_SUB, SUB)
    _, answer = await proxy.connect(consumer_settings(GROUP, TOPIC), metadata=signed(owner))
    await proxy.peer.answers(answer, 1)
    for name, request in (("NotifyClientTermination", termination()), ("Heartbeat", heartbeat())):
        assert await code_of(proxy, name, request, signed(other)) == Code.UNAUTHORIZED
    assert await code_of(proxy, "Heartbeat", heartbeat(), signed(owner)) == Code.OK
    assert await code_of(proxy, "NotifyClientTermination", termination(), signed(owner)) == Code.OK


async def test_so_is_that_of_a_push_consumer_that_receives_before_its_settings_come(
    proxy: ProxyUnderTest, admin: AdminClient
) -> None:
    """It came from another proxy; its user goes on, and no other user has its id."""
    owner = await asyncio.to_thread(make_user, admin, GROUP_SUB, SUB)
    other = await asyncio.to_thread(make_user, admin, GROUP_SUB, SUB)
    request = messages.ReceiveMessageRequest(
        group=resource(GROUP), auto_renew=True, batch_size=1, long_polling_timeout=seconds(0.2)
    )
    on_queue(request, TOPIC)
    for _ in range(2):
        assert await code_of(proxy, "ReceiveMessage", request, signed(owner)) == Code.MESSAGE_NOT_FOUND
    assert [client.username for client in proxy.server.clients.clients()] == [owner]
    assert await code_of(proxy, "ReceiveMessage", request, signed(other)) == Code.UNAUTHORIZED


async def test_a_transaction_of_another_topic_cannot_be_ended(proxy: ProxyUnderTest, admin: AdminClient) -> None:
    """The client claims a topic that it may publish to; the id names a half message of another one."""
    owner = await asyncio.to_thread(make_user, admin, ("Topic:Secret", ["Pub"]))
    thief = await asyncio.to_thread(make_user, admin, PUB)
    half = message("Secret", message_type=enums.MessageType.TRANSACTION)
    sent = await proxy.call("SendMessage", send_request(half), metadata=signed(owner))
    assert sent.status.code == Code.OK
    entry = sent.entries[0]
    request = messages.EndTransactionRequest(
        topic=resource(TOPIC),
        message_id=entry.message_id,
        transaction_id=entry.transaction_id,
        resolution=enums.TransactionResolution.COMMIT,
    )
    assert await code_of(proxy, "EndTransaction", request, signed(thief)) == Code.INVALID_TRANSACTION_ID
    request.topic.name = "Secret"
    assert await code_of(proxy, "EndTransaction", request, signed(thief)) == Code.UNAUTHORIZED
    assert await code_of(proxy, "EndTransaction", request, signed(owner)) == Code.OK


async def test_a_right_that_is_taken_away_counts_within_a_second(proxy: ProxyUnderTest, admin: AdminClient) -> None:
    """Sends go on all the time, so the proxy never waits for a look-up; the time is the one that is promised."""
    user = await asyncio.to_thread(make_user, admin, PUB)
    loop = asyncio.get_running_loop()

    async def allowed_for_s(change: Callable[[], object]) -> float:
        """How long after a change the last send began that was allowed."""
        assert await code_of(proxy, "SendMessage", send_request(message()), signed(user)) == Code.OK
        await asyncio.to_thread(change)
        changed = last_allowed = loop.time()
        while True:
            asked = loop.time()
            if await code_of(proxy, "SendMessage", send_request(message()), signed(user)) == Code.UNAUTHORIZED:
                return last_allowed - changed
            last_allowed = asked

    assert await allowed_for_s(lambda: admin.delete_acl(f"User:{user}")) <= 1.0
    await asyncio.to_thread(admin.set_acl, f"User:{user}", [f"Topic:{TOPIC}"], ["Pub"])
    await until_allowed(proxy, user)
    assert await allowed_for_s(lambda: admin.update_user(user, user_status="disable")) <= 1.0
    await asyncio.to_thread(admin.update_user, user, user_status="enable")
    await until_allowed(proxy, user)
    assert await allowed_for_s(lambda: admin.update_user(user, password="a new secret")) <= 1.0
    await asyncio.to_thread(admin.update_user, user, password=secret_of(user))
    await until_allowed(proxy, user)
    assert await allowed_for_s(lambda: admin.delete_user(user)) <= 1.0


async def until_allowed(proxy: ProxyUnderTest, user: str) -> None:
    while await code_of(proxy, "SendMessage", send_request(message()), signed(user)) != Code.OK:
        pass


async def until_refused(proxy: ProxyUnderTest, user: str, topic: str) -> None:
    """Ask for the route of a topic until the user may not have it."""
    route = messages.QueryRouteRequest(topic=resource(topic))
    while await code_of(proxy, "QueryRoute", route, signed(user)) != Code.UNAUTHORIZED:
        pass


async def test_a_poll_that_waits_brings_nothing_once_the_right_is_gone(
    proxy: ProxyUnderTest, admin: AdminClient
) -> None:
    topic, group = "Waited", "waited-group"
    await asyncio.to_thread(admin.create_topic, topic, queue_nums=1, attributes={"message.type": "NORMAL"})
    rights: list[Right] = [(f"Topic:{topic}", ["Sub"]), (f"Group:{group}", ["Sub"])]
    user = await asyncio.to_thread(make_user, admin, *rights)
    request = messages.ReceiveMessageRequest(
        group=resource(group), invisible_duration=seconds(30), batch_size=1, long_polling_timeout=seconds(15)
    )
    on_queue(request, topic)
    root = signed(ROOT.access_key, ROOT.secret_key)
    poll = asyncio.create_task(code_of(proxy, "ReceiveMessage", request, signed(user)))
    await until(lambda: proxy.server.app.polls == 1)
    await asyncio.to_thread(admin.delete_acl, f"User:{user}")
    await until_refused(proxy, user, topic)
    assert await code_of(proxy, "SendMessage", send_request(message(topic)), root) == Code.OK
    assert await poll == Code.UNAUTHORIZED
    # It is not lost: it is given back, and comes to one who may receive it.
    answers = await proxy.peer.stream("ReceiveMessage", request, metadata=root)
    assert [each.message.body for each in answers if each.WhichOneof("content") == "message"] == [b"body"]


async def test_one_who_may_no_longer_publish_is_asked_no_transaction(proxy: ProxyUnderTest, admin: AdminClient) -> None:
    user = await asyncio.to_thread(make_user, admin, ("Topic:Transaction", ["Pub"]))
    half = message("Transaction", message_type=enums.MessageType.TRANSACTION)
    _, answer = await proxy.connect(producer_settings("Transaction"), metadata=signed(user))
    await proxy.peer.answers(answer, 1)
    assert (await proxy.call("SendMessage", send_request(half), metadata=signed(user))).status.code == Code.OK
    payloads = await proxy.peer.answers(answer, 2)  # the broker's question
    asked = messages.TelemetryCommand.FromString(payloads[1])
    assert asked.WhichOneof("command") == "recover_orphaned_transaction_command"
    await asyncio.to_thread(admin.delete_acl, f"User:{user}")
    client = proxy.server.clients.producer_of("Transaction", turn=0)[0]
    await until_refused(proxy, user, "Transaction")
    found = len(answer.payloads())
    denials = proxy.server.access.check.audit.denials  # type: ignore[union-attr]
    before = denials["authorization"]
    await until(lambda: denials["authorization"] >= before + 2)  # the broker asked twice more
    assert len(answer.payloads()) == found
    assert client.channel is not None


async def test_refusals_are_in_the_audit_log(proxy: ProxyUnderTest, admin: AdminClient, tmp_path: Path) -> None:
    user = await asyncio.to_thread(make_user, admin, SUB)
    await code_of(proxy, "SendMessage", send_request(message()), signed(user))
    await code_of(proxy, "SendMessage", send_request(message()), signed(user, "another"))
    await code_of(proxy, "SendMessage", send_request(message()), {})
    await until(lambda: len(audit_lines(tmp_path)) >= 3)
    first, second, third = audit_lines(tmp_path)
    assert (first["event"], first["user"], first["request"]) == ("denied", user, "SendMessage")
    assert (first["address"], first["action"], first["resource"]) == ("127.0.0.1", "Pub", f"Topic:{TOPIC}")
    assert (second["user"], second["unproved"], second["reason"]) == (user, True, "check signature failed.")
    assert (third.get("user"), third["reason"]) == (None, "authentication header is null")
    text = (tmp_path / "audit.log").read_text()
    assert secret_of(user) not in text


async def test_permitted_and_refused_rpcs_need_no_broker_each(proxy: ProxyUnderTest, admin: AdminClient) -> None:
    user = await asyncio.to_thread(make_user, admin, SUB)
    asked: list[int] = []
    rounds = 0
    messaging = proxy.server.app.messaging
    ask = messaging._ask  # type: ignore[attr-defined]

    async def counted(address: str, code: int, *rest: Any, **more: Any) -> Any:
        asked.append(code)
        return await ask(address, code, *rest, **more)

    messaging._ask = counted  # type: ignore[attr-defined]
    route, loop = messages.QueryRouteRequest(topic=resource(TOPIC)), asyncio.get_running_loop()
    await code_of(proxy, "QueryRoute", route, signed(user))
    started, asked[:] = loop.time(), []
    while loop.time() < started + 3 or rounds < 100:
        assert await code_of(proxy, "QueryRoute", route, signed(user)) == Code.OK
        assert await code_of(proxy, "SendMessage", send_request(message()), signed(user)) == Code.UNAUTHORIZED
        assert await code_of(proxy, "SendMessage", send_request(message()), signed("stranger")) == Code.UNAUTHORIZED
        rounds += 1
    elapsed_s = loop.time() - started
    assert asked.count(PrivateRequestCode.ACL_VERSION) <= 2 * elapsed_s + 3
    # While nothing changes a user is not looked up again; the stranger is, once a second. On a busy machine an answer
    # with the version may come too late for the user.
    assert asked.count(RequestCode.AUTH_GET_ACL) <= 10
    assert asked.count(RequestCode.AUTH_GET_USER) <= elapsed_s + 10


async def test_white_lists_free_an_rpc(daemons: Daemons, admin: AdminClient) -> None:
    route = "apache.rocketmq.v2.QueryRouteRequest"
    request = messages.QueryRouteRequest(topic=resource(TOPIC))
    async with proxy_before(
        daemons.namesrv, authentication_whitelist=route, authorization_whitelist=f"other, {route}", **SECRETS
    ) as proxy:
        assert await code_of(proxy, "QueryRoute", request, {}) == Code.OK
        assert await code_of(proxy, "SendMessage", send_request(message()), {}) == Code.UNAUTHORIZED


async def test_brokers_that_cannot_be_asked_refuse_all(daemons: Daemons, admin: AdminClient) -> None:
    """The proxy's own user is none of the broker's: it learns nothing, and nothing is allowed."""
    stranger = json.dumps({"accessKey": "stranger", "secretKey": "x"})
    async with proxy_before(daemons.namesrv, **{**SECRETS, "inner_credentials": stranger}) as proxy:
        root = signed(ROOT.access_key, ROOT.secret_key)
        assert await code_of(proxy, "SendMessage", send_request(message()), root) == Code.INTERNAL_SERVER_ERROR
        _, answer = await proxy.connect(consumer_settings(GROUP, TOPIC), metadata=root)
        await proxy.peer.done(answer)
        (payload,) = answer.payloads()
        assert messages.TelemetryCommand.FromString(payload).status.code == Code.INTERNAL_SERVER_ERROR


async def test_a_normal_user_cannot_be_the_proxys_own(
    daemons: Daemons, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    user = await asyncio.to_thread(make_user, admin, ("*", ["All"]))
    keys = json.dumps({"accessKey": user, "secretKey": secret_of(user)})
    async with proxy_before(daemons.namesrv, **{**SECRETS, "inner_credentials": keys}) as proxy:
        assert await code_of(proxy, "SendMessage", send_request(message()), signed(user)) == Code.INTERNAL_SERVER_ERROR
    assert "has to be a super user" in caplog.text


async def test_access_control_without_keys_does_not_start(daemons: Daemons, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY", "SECRET_KEY", "CREDENTIALS_FILE"):
        monkeypatch.delenv(f"THERMOCLINE_{name}", raising=False)
    with pytest.raises(SettingError, match="keys of a super user"):
        async with proxy_before(daemons.namesrv, **{**SECRETS, "inner_credentials": ""}):
            pass
    with pytest.raises(SettingError, match="accessKey"):
        async with proxy_before(daemons.namesrv, **{**SECRETS, "inner_credentials": "{"}):
            pass


async def test_a_telemetry_stream_that_says_nothing_learns_nothing(proxy: ProxyUnderTest) -> None:
    command = messages.TelemetryCommand().SerializeToString()
    _, answer = proxy.peer.open(TELEMETRY, command, ends=False, timeout_ms=None, metadata=signed("stranger"))
    await proxy.peer.done(answer)
    (payload,) = answer.payloads()
    assert messages.TelemetryCommand.FromString(payload).status.code == Code.UNAUTHORIZED


async def test_figures_and_clients_are_for_users_with_get_on_the_cluster(
    daemons: Daemons, admin: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = await asyncio.to_thread(make_user, admin, ("Cluster:DefaultCluster", ["Get"]))
    other = await asyncio.to_thread(make_user, admin, ("Topic:*", ["All"]))
    async with proxy_before(daemons.namesrv, health_port=0, **SECRETS) as proxy:
        _, answer = await proxy.connect(
            consumer_settings(GROUP, TOPIC), metadata=signed(ROOT.access_key, ROOT.secret_key)
        )
        await proxy.peer.answers(answer, 1)
        await code_of(proxy, "SendMessage", send_request(message()), {})
        assert await proxy.http("/health") == (200, b"")
        for path in ("/metrics", "/clients", "/nothing"):
            for keys in (None, (other, secret_of(other)), (reader, "wrong"), ("stranger", "x")):
                assert (await proxy.http(path, keys))[0] == 401
        for path in ("/metrics", "/clients", "/health"):
            assert (await proxy.http(path, (reader, secret_of(reader))))[0] == 200
        _, figures = await proxy.http("/metrics", (ROOT.access_key, ROOT.secret_key))
        assert re.search(rb'thermocline_access_denied_total{stage="authentication"} [1-9]', figures)
        assert b'request_code="SendMessage",response_code="unauthorized"' in figures
        words = ["proxy", "clients", "--proxy", proxy.health_address, "--json"]
        keys = ["--access-key", reader, "--secret-key"]
        assert await asyncio.to_thread(run, [*words, *keys, secret_of(reader)]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["user"], row["group"]) == (ROOT.access_key, GROUP)
        assert await asyncio.to_thread(run, [*words, *keys, "wrong"]) == 1
        assert "Get on the cluster" in capsys.readouterr().err
