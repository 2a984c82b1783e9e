"""Keys are in no log, error, metric, list of processes, environment of a helper, object of the bucket or file of a
whole run, but in the file of users: keys of users, those of the brokers themselves, keys of TLS and their passwords.

Of Spark the same is in tests/spark/test_secured_broker.py, of keys of the bucket in tests/crash/test_no_keys_shown.py.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.interop.cluster import Daemons, thermocline_daemons
from tests.process_groups import processes_of
from tests.waiting import wait_until
from thermocline.client import AdminClient, Credentials, Message, MQError, Producer, PushConsumer, TlsOptions
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.errors import UnavailableError

pytestmark = pytest.mark.crash  # it starts a whole broker with its helper processes

NAMES = (
    "key-of-root",
    "key-of-brokers",
    "key-of-alice",
    "token",
    "wrong-key",
    "password-of-server",
    "password-of-client",
)
PLANTED = {name: f"planted-{name}" for name in NAMES}
ROOT = Credentials(access_key="root", secret_key=PLANTED["key-of-root"])
ALICE = Credentials(access_key="alice", secret_key=PLANTED["key-of-alice"], security_token=PLANTED["token"])
WRONG = Credentials(access_key="alice", secret_key=PLANTED["wrong-key"])
KEPT = {"auth.json", "root.keys", "alice.key", "tls.properties", "client.password", "server.key", "client.key"}
"""The file of users, and those that the test has made."""


def of_processes(leader: int) -> str:
    """Command lines of all of them, and the environments of the helpers; the leader's is the one that it was given."""
    found = []
    for process in processes_of(os.getpgid(leader)):
        found.append(Path(f"/proc/{process}/cmdline").read_bytes())
        if process != leader:
            environment = Path(f"/proc/{process}/environ").read_bytes()
            assert b"PATH=" in environment
            found.append(environment)
    return b"\n".join(found).decode(errors="replace")


def helper(leader: int, module: str) -> int | None:
    """The process of a helper."""
    for process in processes_of(os.getpgid(leader)):
        try:
            if module in Path(f"/proc/{process}/cmdline").read_text():
                return process
        except FileNotFoundError:
            continue
    return None


def tls_files(folder: Path) -> tuple[Path, Path, Path, Path]:
    """The file of TLS settings, the authority, and a client's certificate and key; both keys have passwords."""
    authority = Authority(folder / "tls")
    server = authority.issue(
        "s.pem", "server.key", subject="broker", addresses=["127.0.0.1"], password=PLANTED["password-of-server"]
    )
    client = authority.issue("c.pem", "client.key", subject="client", password=PLANTED["password-of-client"])
    path = folder / "tls.properties"
    path.write_text(
        "tls.test.mode.enable=false\ntls.server.need.client.auth=require\ntls.server.authClient=true\n"
        f"tls.server.keyPath={server[1]}\ntls.server.certPath={server[0]}\n"
        f"tls.server.keyPassword={PLANTED['password-of-server']}\n"
        f"tls.server.trustCertPath={authority.path}\n"
        f"tls.client.keyPath={client[1]}\ntls.client.certPath={client[0]}\n"
        f"tls.client.keyPassword={PLANTED['password-of-client']}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={authority.path}\n"
    )
    path.chmod(0o600)
    return path, authority.path, *client


class Run:
    """The daemons, and everything that was seen of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs: list[str] = []
        self.health_port = free_port()
        self._properties, self._authority, self._certificate, self._key = tls_files(folder)
        self._keys_file, self._password_file = folder / "root.keys", folder / "client.password"
        self._keys_file.write_text(f"accessKey: root\nsecretKey: {ROOT.secret_key}\n")
        self._password_file.write_text(PLANTED["password-of-client"])
        (folder / "alice.key").write_text(ALICE.secret_key)
        (folder / "home").mkdir()
        for path in (self._keys_file, self._password_file, folder / "alice.key"):
            path.chmod(0o600)
        self.tls = TlsOptions(
            ca_file=str(self._authority),
            cert_file=str(self._certificate),
            key_file=str(self._key),
            key_password=PLANTED["password-of-client"],
        )

    def settings(self) -> dict[str, str]:
        access = {
            "AuthenticationEnabled": "true",
            "AuthorizationEnabled": "true",
            "InitAuthenticationUser": json.dumps({"username": "root", "password": ROOT.secret_key}),
            "InnerClientAuthenticationCredentials": json.dumps(
                {"accessKey": "inner", "secretKey": PLANTED["key-of-brokers"]}
            ),
            "AuditLogAccesses": "true",
        }
        tls = {"tls.server.mode": "enforcing", "tls.config.file": str(self._properties)}
        return {
            **{name[0].lower() + name[1:]: value for name, value in access.items()},
            **{f"nameServer{name}": value for name, value in access.items()},
            "nameServerAuditLogPath": str(self.folder / "name-server-audit.log"),
            **tls,
            **{f"name.server.{name}": value for name, value in tls.items()},
            "tls.enable": "true",
            "logLevel": "DEBUG",
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeTimerLog": str(1 << 20),
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
            "coldStateIntervalMs": "200",
            "healthPort": str(self.health_port),
        }

    def command(self, namesrv: str, *words: str) -> str:
        """Run a command with the keys of a file."""
        flags = ("--tls", "--tls-ca", self._authority, "--tls-cert", self._certificate, "--tls-key", self._key)
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "thermocline"),
                *words,
                *("--namesrv", namesrv, "--credentials", str(self._keys_file)),
                *map(str, flags),
            ],
            env={
                **os.environ,
                "HOME": str(self.folder / "home"),
                "THERMOCLINE_CLIENT_TLS_KEY_PASSWORD_FILE": str(self._password_file),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.outputs.append(done.stdout + done.stderr)
        return self.outputs[-1]

    def page(self, path: str, keys: Credentials | None) -> str:
        """A page of the health port, or the error that it is answered with."""
        request = urllib.request.Request(f"https://127.0.0.1:{self.health_port}{path}")
        context = ssl.create_default_context(cafile=str(self._authority))
        context.load_cert_chain(self._certificate, self._key, PLANTED["password-of-client"])
        if keys is not None:
            pair = base64.b64encode(f"{keys.access_key}:{keys.secret_key}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as page:
                self.outputs.append(page.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                self.outputs.append(f"{error} {error.headers} {error.read().decode()}")
        return self.outputs[-1]

    def fails(self, work: Callable[[], object]) -> None:
        """Keep all that is shown of the error."""
        with pytest.raises(MQError) as caught:
            work()
        self.outputs += [str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value))]

    def everything(self) -> dict[str, bytes]:
        """What is left, by its place."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.name not in KEPT]
        return {"outputs": "\n".join(self.outputs).encode(), **{str(path): path.read_bytes() for path in files}}

    def secrets(self) -> list[bytes]:
        """All that was planted; of the keys of TLS each line of their files."""
        lines = [
            line
            for name in ("server.key", "client.key")
            for line in (self.folder / "tls" / name).read_bytes().splitlines()
            if b"-----" not in line
        ]
        assert len(lines) > 4
        return [*(secret.encode() for secret in PLANTED.values()), *lines]


def use_sdk(run: Run, daemons: Daemons) -> None:
    """Clients with right and wrong keys; what they show of themselves and of errors."""
    with AdminClient(namesrv=daemons.namesrv, credentials=ROOT, tls=run.tls) as admin:
        admin.create_topic("Secret")
        run.fails(lambda: admin.update_broker_config("broker-a", {"initAuthenticationUser": PLANTED["wrong-key"]}))
        run.fails(lambda: admin.update_broker_config("broker-a", {"tls.server.keyPassword": PLANTED["wrong-key"]}))
        run.outputs += [str(admin.broker_config("broker-a")), repr(admin)]
        with Producer(namesrv=daemons.namesrv, group="p", credentials=ALICE, tls=run.tls) as producer:
            producer.send(Message("Secret", b"body"))
            run.outputs += [repr(producer), repr(producer.credentials), repr(producer.tls), str(vars(type(producer)))]
        consumer = PushConsumer(namesrv=daemons.namesrv, group="c", credentials=ALICE, tls=run.tls)
        run.outputs.append(repr(consumer))
        wait_until(lambda: has_sealed(admin), what="the topic is in the bucket")
    wrong = Producer(namesrv=daemons.namesrv, group="p", credentials=WRONG, tls=run.tls)
    with wrong:
        run.fails(lambda: wrong.send(Message("Secret", b"body")))
    bad = TlsOptions(
        ca_file=run.tls.ca_file,
        cert_file=run.tls.cert_file,
        key_file=run.tls.key_file,
        key_password=PLANTED["wrong-key"],
    )
    run.fails(lambda: AdminClient(namesrv=daemons.namesrv, tls=bad, credentials=ROOT).start())


def has_sealed(admin: AdminClient) -> bool:
    try:
        admin.tier_seal("Secret")
    except UnavailableError:  # the tier process has not started yet
        return False
    return True


def test_planted_keys_are_found_nowhere(tmp_path: Path) -> None:
    run = Run(tmp_path)
    client_log = logging.FileHandler(tmp_path / "client.log")
    logger = logging.getLogger("thermocline")
    level = logger.level
    logger.addHandler(client_log)
    logger.setLevel(logging.DEBUG)
    try:
        with thermocline_daemons(tmp_path / "run", settings=run.settings()) as daemons:
            leader = daemons.process.process_id
            password = ("--password-file", str(tmp_path / "alice.key"))
            for more in ((), ("--name-servers",)):
                assert "created alice" in run.command(daemons.namesrv, "user", "create", "alice", *password, *more)
                run.command(daemons.namesrv, "user", "create", "alice", *password, *more)
                run.command(daemons.namesrv, "acl", "set", "alice", "Pub", "Topic:Secret", *more)
                run.command(daemons.namesrv, "user", "list", "--json", *more)
                run.command(daemons.namesrv, "acl", "list", "--json", *more)
            run.command(daemons.namesrv, "acl", "check", "alice", "Pub", "Topic:Secret", "--json")
            assert "tls.server.mode" in run.command(daemons.namesrv, "broker", "config", "get", "broker-a", "--json")
            use_sdk(run, daemons)
            assert 'thermocline_access_denied_total{stage="authentication"}' in run.page("/metrics", ROOT)
            assert '"appendOffset"' in run.page("/health", ROOT)
            for keys in (None, WRONG):
                assert "401" in run.page("/metrics", keys)
            # A helper that crashes is started again; what it leaves behind is in the same files.
            tier = helper(leader, "tier_process")
            assert tier is not None
            run.outputs.append(of_processes(leader))
            os.kill(tier, signal.SIGABRT)
            wait_until(lambda: helper(leader, "tier_process") not in (None, tier), what="the helper is back")
            run.outputs.append(of_processes(leader))
    finally:
        logger.removeHandler(client_log)
        logger.setLevel(level)
        client_log.close()
    everything = run.everything()
    for part in ("audit.log", "name-server-audit.log", "dev.log", "client.log", "/cold/", "/commitlog/"):
        assert any(part in place for place in everything), part
    assert any(b'"accessed"' in data for place, data in everything.items() if place.endswith("audit.log"))
    for secret, (place, data) in itertools.product(run.secrets(), everything.items()):
        assert secret not in data, place
