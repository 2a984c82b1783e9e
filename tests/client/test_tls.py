"""The SDK, the commands and Spark's clients over TLS, to a real broker and NameServer that take nothing else and ask
for a certificate; and daemons that refuse to start.

Covers `remoting/tls/tls_options.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.interop.cluster import Daemons, settings_environment, thermocline_daemons
from tests.waiting import wait_until
from thermocline.cli.main import run
from thermocline.client import (
    AdminClient,
    ConsumeContext,
    ConsumeFromWhere,
    InvalidRequestError,
    LocalTransactionState,
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TlsOptions,
    TransactionProducer,
    UnavailableError,
)
from thermocline.client.tls_environment import TLS_VARIABLE, tls_of_environment
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.spark.streaming.live_client import LiveClient

pytestmark = pytest.mark.xdist_group("sdk-tls")

TIMEOUT_MS = 20_000
COUNT = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Running daemons, and the files of their clients."""

    daemons: Daemons
    authority: Authority
    client: tuple[Path, Path]
    password_file: Path

    def options(self, **changes: object) -> TlsOptions:
        values = {
            "ca_file": str(self.authority.path),
            "cert_file": str(self.client[0]),
            "key_file": str(self.client[1]),
            "key_password": self.password_file.read_text().strip(),
            **changes,
        }
        return TlsOptions(**values)  # type: ignore[arg-type]

    def client_options(self, tls: TlsOptions | None) -> dict[str, object]:
        return {"namesrv": self.daemons.namesrv, "tls": tls, "request_timeout_ms": TIMEOUT_MS}

    def environment(self) -> dict[str, str]:
        return {
            TLS_VARIABLE: "true",
            f"{TLS_VARIABLE}_CA": str(self.authority.path),
            f"{TLS_VARIABLE}_CERT": str(self.client[0]),
            f"{TLS_VARIABLE}_KEY": str(self.client[1]),
            f"{TLS_VARIABLE}_KEY_PASSWORD_FILE": str(self.password_file),
        }


@pytest.fixture(scope="module")
def site(module_folder: Path) -> Iterator[Site]:
    authority = Authority(module_folder / "certificates")
    certificate, key = authority.issue("server.pem", "server.key", subject="broker", addresses=["127.0.0.1"])
    client = authority.issue("client.pem", "client.key", subject="client", password="a password")
    outgoing = authority.issue("outgoing.pem", "outgoing.key", subject="outgoing")
    password_file = module_folder / "password"
    password_file.write_text("a password\n")
    server = {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.keyPath": str(key),
        "tls.server.certPath": str(certificate),
        "tls.server.trustCertPath": str(authority.path),
    }
    settings = {
        **server,
        **{f"name.server.{name}": value for name, value in server.items()},
        "useTLS": "true",
        "tls.client.keyPath": str(outgoing[1]),
        "tls.client.certPath": str(outgoing[0]),
        "tls.client.trustCertPath": str(authority.path),
    }
    with thermocline_daemons(module_folder / "daemons", settings=settings) as daemons:
        yield Site(daemons=daemons, authority=authority, client=client, password_file=password_file)


def test_every_kind_of_client(site: Site) -> None:
    options, topic = site.client_options(site.options()), "TlsEvery"
    with AdminClient(**options) as admin:  # type: ignore[arg-type]
        admin.create_topic(topic, queue_nums=2)
        assert [broker.address for broker in admin.cluster_info()] == [site.daemons.broker_address]
    bodies = {f"{number}".encode() * 500 for number in range(COUNT)}
    with Producer(group="tls-producers", **options) as producer:  # type: ignore[arg-type]
        for body in sorted(bodies):
            producer.send(Message(topic=topic, body=body))
    pushed: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        pushed.extend(message.body for message in messages)

    beginning = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **options}
    consumer = PushConsumer(group="tls-push", **beginning)  # type: ignore[arg-type]
    consumer.subscribe(topic)
    consumer.register_listener(listen)
    with consumer:
        wait_until(lambda: set(pushed) >= bodies, what="the push consumer has all", timeout_s=60)
    with PullConsumer(group="tls-pull", **beginning) as puller:  # type: ignore[arg-type]
        puller.subscribe(topic)
        polled: set[bytes] = set()
        wait_until(lambda: polled.update(one.body for one in puller.poll()) or polled >= bodies, what="all is polled")
    with PopConsumer(group="tls-pop", **beginning) as popper:  # type: ignore[arg-type]
        popper.subscribe(topic)
        (popped, *_) = popper.receive()
        assert popped.body in bodies
        popper.ack(popped)
    decider = TransactionProducer(group="tls-transactions", **options)  # type: ignore[arg-type]
    decider.register_transaction_listener(_Commits())
    with decider:
        result = decider.send_message_in_transaction(Message(topic=topic, body=b"decided"))
        assert result.local_transaction_state is LocalTransactionState.COMMIT_MESSAGE


class _Commits:
    """Every transaction is committed."""

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


@pytest.mark.parametrize("fault", ["plain", "no certificate", "system's authorities", "another name"])
def test_a_client_with_a_fault_gets_an_error_that_says_why(site: Site, fault: str) -> None:
    tls = {
        "plain": None,
        "no certificate": TlsOptions(ca_file=str(site.authority.path)),
        "system's authorities": site.options(ca_file=None),
        "another name": site.options(server_name="broker.example"),
    }[fault]
    sentence = {
        "plain": "the connection was lost",
        "no certificate": "the connection was lost",
        "system's authorities": "certificate is not trusted",
        "another name": "certificate is not trusted",
    }[fault]
    with pytest.raises(UnavailableError) as caught, AdminClient(**site.client_options(tls)) as admin:  # type: ignore[arg-type]
        admin.cluster_info()
    assert sentence in str(caught.value)


def test_a_live_read_of_spark(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in site.environment().items():
        monkeypatch.setenv(name, value)
    with AdminClient(**site.client_options(site.options())) as admin:  # type: ignore[arg-type]
        admin.create_topic("TlsLive", queue_nums=1)
    client = LiveClient((site.daemons.namesrv,))
    try:
        assert client.run(client.masters("TlsLive")) == {"broker-a": site.daemons.broker_address}
    finally:
        client.close()


def test_a_client_that_is_given_no_options_has_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Producer(group="p").tls is None
    monkeypatch.setenv(TLS_VARIABLE, "true")
    monkeypatch.setenv(f"{TLS_VARIABLE}_CA", "/ca.pem")
    assert Producer(group="p").tls == TlsOptions(ca_file="/ca.pem")
    assert Producer(group="p", tls=None).tls is None
    monkeypatch.setenv(TLS_VARIABLE, "perhaps")
    with pytest.raises(InvalidRequestError, match=TLS_VARIABLE):
        Producer(group="p")


# -- commands ----------------------------------------------------------------------------------------------------------


def command(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "thermocline"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_commands_by_flags_and_by_variables(site: Site) -> None:
    listing = ["cluster", "list", "--namesrv", site.daemons.namesrv, "--json"]
    by_variables = command(listing, site.environment())
    assert by_variables.returncode == 0, by_variables.stderr
    assert site.daemons.broker_address in by_variables.stdout
    flags = ["--tls", "--tls-ca", str(site.authority.path), "--tls-cert", str(site.client[0])]
    password = {f"{TLS_VARIABLE}_KEY_PASSWORD": "a password"}
    by_flags = command([*listing, *flags, "--tls-key", str(site.client[1])], password)
    assert json.loads(by_flags.stdout) == json.loads(by_variables.stdout)
    flags = ["--tls", "--tls-cert", str(site.client[0]), "--tls-key", str(site.client[1]), "--tls-no-verify"]
    unchecked = command([*listing, *flags], password)
    assert unchecked.returncode == 0, unchecked.stderr
    assert "certificates of servers are not checked" in unchecked.stderr
    refused = command([*listing, "--tls"], {})
    assert refused.returncode == 1
    assert "the server's certificate is not trusted" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--tls-ca", "x"], {}, "--tls-ca says how TLS is spoken: add --tls."),
        (["--tls-no-verify"], {}, "--tls-no-verify says how TLS is spoken: add --tls."),
        ([], {f"{TLS_VARIABLE}_CA": "x"}, f"{TLS_VARIABLE}_CA is set, and {TLS_VARIABLE}=true is not."),
        ([], {TLS_VARIABLE: "yes"}, f"{TLS_VARIABLE} must be true or false value=yes."),
        (["--tls", "--tls-key", "x"], {}, "a key needs its certificate: cert_file is missing."),
        (["--tls", "--tls-ca", "x", "--tls-no-verify"], {}, "verify=False checks nothing."),
    ],
)
def test_flags_that_contradict_each_other_are_misuse(
    arguments: list[str],
    environment: Mapping[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(["cluster", "list", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error_before_any_connection() -> None:
    with (
        pytest.raises(SettingError, match="a TLS file cannot be read"),
        AdminClient(tls=TlsOptions(ca_file="/missing")),
    ):
        pass
    assert issubclass(SettingError, InvalidRequestError)


def test_passwords_come_from_a_variable_or_a_file(tmp_path: Path) -> None:
    certificate = {TLS_VARIABLE: "true", f"{TLS_VARIABLE}_CERT": "c"}
    by_file, by_word = f"{TLS_VARIABLE}_KEY_PASSWORD_FILE", f"{TLS_VARIABLE}_KEY_PASSWORD"
    path = tmp_path / "password"
    path.write_text("secret\n")
    options = tls_of_environment({**certificate, by_file: str(path)})
    assert options is not None
    assert options.key_password == "secret"
    assert "secret" not in repr(options)
    with pytest.raises(InvalidParameterError, match="given twice"):
        tls_of_environment({**certificate, by_file: str(path), by_word: "x"})
    with pytest.raises(InvalidParameterError, match="cannot be read"):
        tls_of_environment({**certificate, by_file: str(tmp_path / "none")})
    assert tls_of_environment({}) is None
    assert tls_of_environment({TLS_VARIABLE: "false"}) is None


# -- daemons that refuse to start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("daemon", "fault"),
    [("broker", "missing"), ("broker", "password"), ("namesrv", "contradiction"), ("namesrv", "file")],
)
def test_a_daemon_does_not_start_with_wrong_files(daemon: str, fault: str, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "c").issue("s.pem", "s.key", subject="s", password="right")
    settings = {
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.server.keyPassword": "wrong",
    }
    sentence = "must be PEM, and the password right"
    if fault == "missing":
        settings |= {"tls.server.keyPath": f"{tmp_path}/none"}
        sentence = "a TLS file cannot be read: No such file or directory"
    elif fault == "contradiction":
        settings = {"tls.server.need.client.auth": "require"}
        sentence = "a certificate that is not checked proves nothing"
    elif fault == "file":
        settings = {"tls.config.file": f"{tmp_path}/none"}
        sentence = "a TLS file cannot be read: No such file or directory"
    flags = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    data = ["--data", str(tmp_path / "data")]
    finished = command([daemon, *data, "--listen", "127.0.0.1:0", *flags], {})
    assert finished.returncode == 2
    assert sentence in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "wrong" not in finished.stderr
    assert "ready" not in finished.stdout


def test_settings_reach_the_daemons_by_variables() -> None:
    assert settings_environment({"tls.server.mode": "x", "name.server.tls.server.mode": "y"}) == {
        "THERMOCLINE_TLS_SERVER_MODE": "x",
        "THERMOCLINE_NAME_SERVER_TLS_SERVER_MODE": "y",
    }
