"""A client without a user learns nothing but the protocol version, from any port of a broker and a NameServer.

Every port that the daemons listen on is found, and asked with every request code in every form, with frames that are
none, over TLS, while the daemons start, and by HTTP. What comes back is compared with a list of all that may; nothing
that was planted (names of topics, groups, users, hosts, paths) is in any byte of it.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

from tests.auth.test_effects import PULL, SEND
from tests.interop.cluster import Daemons, thermocline_daemons
from tests.process_groups import processes_of
from thermocline.client import AdminClient, Credentials, Message, Producer
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    VERSION,
    RemotingCommand,
    SerializeType,
    decode_command,
)
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("strangers")]  # it starts a whole broker

ROOT = Credentials(access_key="planted-root", secret_key="planted-key-of-root")
TOPIC, GROUP = "PlantedTopic", "PlantedGroup"
CODES = sorted(
    {
        *map(int, RequestCode),
        *map(int, PrivateRequestCode),
        *range(-3, 420),
        *range(890, 1_030),
        *range(90_090, 90_190),
        *(1 << 31 - 1, -(1 << 31), 77_777),
    }
)
NO_USER = (ResponseCode.NO_PERMISSION, "username cannot be null.")
BAD_SIGNATURE = (ResponseCode.NO_PERMISSION, "check signature failed.")
STARTING = {(ResponseCode.SYSTEM_BUSY, text) for text in ("system busy", "the broker is starting")}
"""A broker takes its port before it has read its users: clients ask again."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNAUTHORIZED = (
    b"HTTP/1.1 401 Unauthorized\r\n"
    b'WWW-Authenticate: Basic realm="thermocline", charset="UTF-8"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
HEADER_MEMBERS = {"code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version"}
TIMEOUT_S = 60
NOBODY = 65_534


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The daemons, and what no answer may contain."""

    daemons: Daemons
    ports: dict[str, int]
    planted: tuple[bytes, ...]

    def check_bytes(self, received: bytes) -> None:
        for secret in self.planted:
            assert secret not in received, (secret, received[:300])


def settings(health_port: int, **more: str) -> dict[str, str]:
    access = {
        "AuthenticationEnabled": "true",
        "AuthorizationEnabled": "true",
        "InitAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
        "InnerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "planted-inner", "secretKey": "planted-key-of-inner"}
        ),
    }
    return {
        **{name[0].lower() + name[1:]: value for name, value in access.items()},
        **{f"nameServer{name}": value for name, value in access.items()},
        "healthPort": str(health_port),
        "brokerName": "planted-broker",
        "brokerClusterName": "PlantedCluster",
        **more,
    }


@pytest.fixture(scope="module")
def site(module_folder: Path) -> Iterator[Site]:
    health = free_port()
    with thermocline_daemons(module_folder / "planted-folder", settings=settings(health)) as daemons:
        with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as admin:
            admin.create_topic(TOPIC, queue_nums=1)
            admin.create_group(GROUP)
        with Producer(namesrv=daemons.namesrv, group="planted-producers", credentials=ROOT) as producer:
            producer.send(Message(TOPIC, b"planted body", tags="planted-tag", keys="planted-key"))
        ports = {
            name: int(address.rpartition(":")[2])
            for name, address in (("broker", daemons.broker_address), ("NameServer", daemons.namesrv))
        }
        planted = [b"lanted", str(module_folder).encode()]
        planted += [f"127.0.0.1:{port}".encode() for port in (*ports.values(), health)]
        yield Site(daemons=daemons, ports={**ports, "health": health}, planted=tuple(planted))


# -- which ports there are ---------------------------------------------------------------------------------------------


def sockets_of(group: int) -> set[str]:
    """Inodes of the sockets that processes of a group have."""
    found = set()
    for process in processes_of(group):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    return found


def test_there_are_no_other_ports(site: Site) -> None:
    """What listens is the three ports, and unix sockets that another user of the machine cannot connect to."""
    inodes = sockets_of(os.getpgid(site.daemons.process.process_id))
    listening = {
        (int(row[1].rpartition(":")[2], 16), row[1].partition(":")[0])
        for table in ("tcp", "tcp6")
        for row in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if row[3] == "0A" and row[9] in inodes
    }
    assert {port for port, _ in listening} == set(site.ports.values())
    assert {address for _, address in listening} == {"0100007F"}, "loopback alone"
    for table in ("udp", "udp6"):
        rows = map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        assert not [row for row in rows if row[9] in inodes]
    rows = map(str.split, Path("/proc/net/unix").read_text().splitlines()[1:])
    paths = [Path(row[7]) for row in rows if row[6] in inodes and int(row[3], 16) & 0x10000]
    assert paths
    for path in paths:
        assert path.is_absolute(), "an abstract socket has no mode"
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0
        if os.geteuid() == 0:
            assert connect_as_nobody(path) == "PermissionError"


def connect_as_nobody(path: Path) -> str:
    """The name of the error that a process of another user gets."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
            os.write(writer, b"connected")
        except OSError as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode()


# -- requests ----------------------------------------------------------------------------------------------------------


def fields_of(code: int, topic: str, group: str) -> dict[str, str]:
    if code == RequestCode.SEND_MESSAGE_V2:
        return {**SEND, "b": topic}
    if code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        return {**PULL, "topic": topic, "consumerGroup": group}
    return {
        **dict.fromkeys(("topic", "b", "originTopic"), topic),
        **dict.fromkeys(("consumerGroup", "group", "groupName", "producerGroup"), group),
        "clusterName": "PlantedCluster",
        "username": ROOT.access_key,
        "subject": f"User:{ROOT.access_key}",
    }


STRANGERS: dict[str, dict[str, str]] = {
    "no user": {},
    "empty user": {"AccessKey": "", "Signature": ""},
    "unknown user": {"AccessKey": "no-such-user", "Signature": "c2lnbmF0dXJl"},
    "no signature": {"AccessKey": ROOT.access_key},
    "wrong signature": {"AccessKey": ROOT.access_key, "Signature": "c2lnbmF0dXJl"},
    "a token": {"AccessKey": ROOT.access_key, "Signature": "c2lnbmF0dXJl", "SecurityToken": "t"},
}


def connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def read_frames(stream: socket.socket, count: int) -> list[bytes]:
    """So many frames without their length, or fewer when the peer closes."""
    data, frames = bytearray(), []
    while len(frames) < count:
        if len(data) >= LENGTH.size and len(data) >= LENGTH.size + LENGTH.unpack_from(data)[0]:
            end = LENGTH.size + LENGTH.unpack_from(data)[0]
            frames.append(bytes(data[LENGTH.size : end]))
            del data[:end]
            continue
        chunk = stream.recv(1 << 16)
        if not chunk:
            break
        data += chunk
    assert not data or len(frames) == count
    return frames


def check_answer(site: Site, frame: bytes, *, is_json: bool) -> tuple[int, str | None]:
    """All of it is allowed; its code and remark, which are yet to be checked."""
    site.check_bytes(frame)
    answer = decode_command(frame)
    assert not answer.ext_fields
    assert bytes(answer.body) == b""
    assert answer.flag == FLAG_RESPONSE
    assert answer.version == VERSION
    assert answer.language in (LanguageCode.JAVA, LanguageCode.PYTHON, LanguageCode.OTHER)
    if is_json:
        assert json.loads(frame[4:]).keys() <= HEADER_MEMBERS
    return answer.code, answer.remark


@pytest.mark.parametrize(
    ("stranger", "form"),
    [
        ("no user", "json"),
        ("wrong signature", "binary"),
        *(pytest.param(stranger, "json", marks=pytest.mark.full) for stranger in STRANGERS if stranger != "no user"),
    ],
)
@pytest.mark.parametrize("daemon", ["broker", "NameServer"])
def test_every_request_code_is_refused_alike(site: Site, daemon: str, stranger: str, form: str) -> None:
    expected = NO_USER if stranger in ("no user", "empty user") else BAD_SIGNATURE
    with connection(site.ports[daemon]) as stream:
        for code in CODES:
            opaques = []
            for topic, group in ((TOPIC, GROUP), ("no-such-topic", "no-such-group")):
                command = RemotingCommand.request(
                    code, ext_fields={**fields_of(code, topic, group), **STRANGERS[stranger]}, body=b"{}"
                )
                if form == "binary":
                    command.serialize_type = SerializeType.ROCKETMQ
                opaques.append(command.opaque)
                stream.sendall(command.encode())
                one_way = RemotingCommand.request(code, ext_fields=command.ext_fields, body=b"{}")
                one_way.flag |= FLAG_ONEWAY
                stream.sendall(one_way.encode())
            frames = read_frames(stream, 2)
            assert [decode_command(frame).opaque for frame in frames] == opaques
            for frame in frames:
                assert check_answer(site, frame, is_json=form == "json") == expected, code


# -- what is no request ------------------------------------------------------------------------------------------------

MALFORMED = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "negative length": struct.pack(">ii", -5, 0),
    "too long": struct.pack(">ii", 1 << 30, 0),
    "no header": struct.pack(">i", 0),
    "header longer than the frame": struct.pack(">ii", 4, 0x00FFFFFF),
    "unknown serialisation": struct.pack(">ii", 6, 0x7F000002) + b"{}",
    "no JSON": struct.pack(">ii", 7, 3) + b"{a:",
    "JSON of another type": struct.pack(">ii", 6, 2) + b"[]",
    "binary header cut": struct.pack(">ii", 6, 0x01000002) + b"\0\1",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(64),
}


@pytest.mark.parametrize("fault", MALFORMED)
@pytest.mark.parametrize("daemon", ["broker", "NameServer"])
def test_what_is_no_frame_gets_no_byte(site: Site, daemon: str, fault: str) -> None:
    with connection(site.ports[daemon]) as stream:
        stream.sendall(MALFORMED[fault])
        assert stream.recv(1) == b""


@pytest.mark.parametrize("daemon", ["broker", "NameServer"])
def test_what_asks_for_no_answer_gets_none(site: Site, daemon: str) -> None:
    """Unexpected answers, one-way requests, half a frame; then a request, whose answer comes first."""
    with connection(site.ports[daemon]) as silent, connection(site.ports[daemon]) as half:
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=b"{}")
        half.sendall(request.encode()[:-1])
        for code in (0, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.PULL_MESSAGE):
            answer = RemotingCommand.request(code)
            answer.flag = FLAG_RESPONSE
            silent.sendall(answer.encode())
            one_way = RemotingCommand.request(code)
            one_way.flag = FLAG_ONEWAY
            silent.sendall(one_way.encode())
        silent.sendall(request.encode())
        (frame,) = read_frames(silent, 1)
        assert decode_command(frame).opaque == request.opaque
        assert check_answer(site, frame, is_json=True) == NO_USER
        half.sendall(request.encode()[-1:])
        (frame,) = read_frames(half, 1)
        assert check_answer(site, frame, is_json=True) == NO_USER


@pytest.mark.parametrize("daemon", ["broker", "NameServer", "health"])
def test_a_certificate_names_no_machine(site: Site, daemon: str) -> None:
    """The one that a daemon signs itself; behind it the answers are those of a plain connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(connection(site.ports[daemon])) as stream:
        der = stream.getpeercert(binary_form=True)
        assert der is not None
        site.check_bytes(der)
        certificate = x509.load_der_x509_certificate(der)
        assert certificate.subject == certificate.issuer
        assert certificate.subject.rfc4514_string() == "CN=localhost"
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert {str(name.value) for name in names} == {"localhost", "127.0.0.1", "::1"}
        assert len(certificate.extensions) == 1
        assert stream.selected_alpn_protocol() is None
        if daemon == "health":
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"".join(iter(lambda: stream.recv(1 << 16), b"")) == UNAUTHORIZED
        else:
            stream.sendall(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO).encode())
            (frame,) = read_frames(stream, 1)
            assert check_answer(site, frame, is_json=True) == NO_USER


# -- HTTP --------------------------------------------------------------------------------------------------------------

ASKED = (
    *(
        "GET /",
        "GET /metrics",
        "GET /metrics?x=1",
        "GET /health/",
        "GET //metrics",
        "GET /../etc/passwd",
        "GET /nothing",
    ),
    *("HEAD /metrics", "POST /health", "PUT /metrics", "OPTIONS *", "CONNECT x:1", "TRACE /metrics"),
)
HEADERS = {
    "nothing": "",
    "unknown user": "Authorization: Basic bm86a2V5\r\n",
    "wrong key": "Authorization: Basic cGxhbnRlZC1yb290OmtleQ==\r\n",
    "another scheme": "Authorization: Bearer planted\r\n",
    "no base64": "Authorization: Basic ***\r\n",
    "no colon": "authorization: basic cGxhbnRlZA==\r\n",
}


def http(port: int, request: str) -> bytes:
    with connection(port) as stream:
        stream.sendall(request.encode())
        received = b""
        while chunk := stream.recv(1 << 16):
            received += chunk
        return received


@pytest.mark.parametrize("header", HEADERS)
def test_the_health_port_tells_whether_the_broker_serves(site: Site, header: str) -> None:
    port = site.ports["health"]
    for asked in ASKED:
        assert http(port, f"{asked} HTTP/1.1\r\nHost: x\r\n{HEADERS[header]}\r\n") == UNAUTHORIZED, asked
    has_keys = header in ("unknown user", "wrong key")
    answer = http(port, f"GET /health HTTP/1.1\r\nHost: x\r\n{HEADERS[header]}\r\n")
    assert answer == (UNAUTHORIZED if has_keys else OK)


def test_the_health_port_closes_what_is_no_request(site: Site) -> None:
    assert http(site.ports["health"], "x" * (1 << 14)) == b""
    assert http(site.ports["health"], "\r\n\r\n") == UNAUTHORIZED


# -- while they start and stop -----------------------------------------------------------------------------------------


class Hammer:
    """Asks ports over and over, from before they are open until after they are closed."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.answers: dict[str, set[tuple[int, str | None] | bytes]] = {name: set() for name in ports}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(name, port)) for name, port in ports.items()]

    def __enter__(self) -> Hammer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, name: str, port: int) -> None:
        while not self._ended.is_set():
            try:
                if name == "health":
                    self.answers[name].add(http(port, "GET /health HTTP/1.1\r\n\r\n"))
                    self.answers[name].add(http(port, "GET /metrics HTTP/1.1\r\n\r\n"))
                    continue
                with connection(port) as stream:
                    for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE):
                        fields = fields_of(code, TOPIC, GROUP)
                        stream.sendall(RemotingCommand.request(code, ext_fields=fields).encode())
                    for frame in read_frames(stream, 3):
                        answer = decode_command(frame)
                        assert not answer.ext_fields
                        self.answers[name].add((answer.code, answer.remark))
            except OSError:
                time.sleep(0.002)  # not open yet, or no more


def test_they_tell_no_more_while_they_start_and_stop(tmp_path: Path) -> None:
    ports = {"broker": free_port(), "NameServer": free_port(), "health": free_port()}
    addresses = {"listen": f"127.0.0.1:{ports['broker']}", "namesrv": f"127.0.0.1:{ports['NameServer']}"}
    with (
        Hammer(ports) as hammer,
        thermocline_daemons(tmp_path, settings=settings(ports["health"]), **addresses) as daemons,
        AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as admin,
    ):
        admin.create_topic(TOPIC, queue_nums=1)
    assert NO_USER in hammer.answers["broker"]
    assert hammer.answers["broker"] <= {NO_USER, *STARTING}
    assert hammer.answers["NameServer"] == {NO_USER}
    assert UNAUTHORIZED in hammer.answers["health"]
    assert hammer.answers["health"] <= {OK, UNAVAILABLE, UNAUTHORIZED, b""}
