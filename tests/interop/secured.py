"""A NameServer and a broker that take nothing but TLS and signed requests, and what clients need to use them.

users      root (super user), inner (the broker's own requests), app (every topic and group),
           may, may-not, from-afar (tests of refusals)
TLS        enforcing; a certificate of a client is checked when one is shown, as the Go client has none to show
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.certificates import Authority
from tests.interop import fixtures_go, test_java_transactions
from tests.interop.cluster import Daemons, thermocline_daemons
from thermocline.client import AdminClient, Credentials
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.tls import TlsOptions

ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
APP = Credentials(access_key="app", secret_key="the-key-of-app")
INNER = {"accessKey": "inner", "secretKey": "the-key-of-brokers"}
PASSWORD = "a password of a test"
ROUTE_CODE = str(int(RequestCode.GET_ROUTEINFO_BY_TOPIC))
NAME_SERVER_AUDIT = "name-server-audit.log"
RIGHTS = {"Topic:*": ["Pub", "Sub", "Get", "Create"], "Group:*": ["Sub", "Get"], "Cluster:*": ["Get"]}
ACCESS = {
    "AuthenticationEnabled": "true",
    "AuthorizationEnabled": "true",
    "InitAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "InnerClientAuthenticationCredentials": json.dumps(INNER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Certificates: the daemons' and clients' authority, and another one."""

    authority: Authority
    foreign: Authority
    server: tuple[Path, Path]
    client: tuple[Path, Path]
    foreign_client: tuple[Path, Path]


def certificate_files(folder: Path) -> Files:
    """Make them; the server's key has PASSWORD."""
    authority, foreign = Authority(folder / "ours"), Authority(folder / "foreign", name="Another authority")
    return Files(
        authority=authority,
        foreign=foreign,
        server=authority.issue("s.pem", "s.key", subject="broker", addresses=["127.0.0.1"], password=PASSWORD),
        client=authority.issue("client.pem", "client.key", subject="client"),
        foreign_client=foreign.issue("client.pem", "client.key", subject="stranger"),
    )


@contextlib.contextmanager
def tls_daemons(
    folder: Path, files: Files, *, client_certificates: str, settings: Mapping[str, str] | None = None
) -> Iterator[Daemons]:
    """Both daemons by RocketMQ's own file of TLS settings; `client_certificates` is what `need.client.auth` says."""
    path = folder / "tls.properties"
    path.write_text(
        "tls.test.mode.enable=false\n"
        f"tls.server.need.client.auth={client_certificates}\n"
        f"tls.server.keyPath={files.server[1]}\n"
        f"tls.server.keyPassword={PASSWORD}\n"
        f"tls.server.certPath={files.server[0]}\n"
        "tls.server.authClient=true\n"
        f"tls.server.trustCertPath={files.authority.path}\n"
        f"tls.client.keyPath={files.client[1]}\n"
        f"tls.client.certPath={files.client[0]}\n"
        "tls.client.authServer=true\n"
        f"tls.client.trustCertPath={files.authority.path}\n"
    )
    path.chmod(0o600)
    of_both = {"tls.server.mode": "enforcing", "tls.config.file": str(path)}
    of_name_server = {f"name.server.{name}": value for name, value in of_both.items()}
    every = {**of_both, **of_name_server, "tls.enable": "true", **(settings or {})}
    with thermocline_daemons(folder / "daemons", settings=every) as running:
        yield running
        assert PASSWORD not in running.process.output()


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The running daemons."""

    daemons: Daemons
    directory: Path
    files: Files

    @property
    def namesrv(self) -> str:
        return self.daemons.namesrv

    @property
    def tls(self) -> TlsOptions:
        """How the SDK connects."""
        certificate, key = self.files.client
        return TlsOptions(ca_file=str(self.files.authority.path), cert_file=str(certificate), key_file=str(key))

    @property
    def root(self) -> Credentials:
        """The super user."""
        return ROOT

    def admin(self, credentials: Credentials = ROOT) -> AdminClient:
        return AdminClient(namesrv=self.namesrv, credentials=credentials, tls=self.tls)

    def environment(self, credentials: Credentials) -> dict[str, str]:
        """The same for programs that are given it in their environment."""
        certificate, key = self.files.client
        return {
            "THERMOCLINE_ACCESS_KEY": credentials.access_key,
            "THERMOCLINE_SECRET_KEY": credentials.secret_key,
            "THERMOCLINE_CLIENT_TLS": "true",
            "THERMOCLINE_CLIENT_TLS_CA": str(self.files.authority.path),
            "THERMOCLINE_CLIENT_TLS_CERT": str(certificate),
            "THERMOCLINE_CLIENT_TLS_KEY": str(key),
        }

    def denials(self, user: str | None) -> list[dict[str, Any]]:
        """The denials of a user in the broker's audit log, which is written a little after the answers."""
        return denials_in(self.directory / "daemons" / "data" / "store" / "thermocline" / "audit.log", user)

    def name_server_denials(self, user: str | None) -> list[dict[str, Any]]:
        """Likewise, of the NameServer."""
        return denials_in(self.directory / NAME_SERVER_AUDIT, user)


def denials_in(path: Path, user: str | None) -> list[dict[str, Any]]:
    """The denials of a user in an audit log."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if line["event"] == "denied" and line.get("user") == user]


def java_tls_options(authority: Authority, certificate: tuple[Path, Path] | None) -> list[str]:
    """As RocketMQ's page on TLS gives them to a client."""
    options = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority.path,
    }
    if certificate is not None:
        options |= {"tls.client.certPath": certificate[0], "tls.client.keyPath": certificate[1]}
    return [f"-D{name}={value}" for name, value in options.items()]


@contextlib.contextmanager
def secured_daemons(
    folder: Path, *, files: Files | None = None, routes_for_all: bool = False, more: Mapping[str, str] | None = None
) -> Iterator[Secured]:
    """Both with TLS and access control, and a user `app` with rights to all topics and groups.

    `routes_for_all`: the NameServer gives routes to all, so that the broker is the one to refuse. `files`: those of
    other daemons. `more`: settings.
    """
    free = {f"nameServer{kind}Whitelist": ROUTE_CODE for kind in ("Authentication", "Authorization")}
    settings = {
        **(free if routes_for_all else {}),
        **{name[0].lower() + name[1:]: value for name, value in ACCESS.items()},
        **{f"nameServer{name}": value for name, value in ACCESS.items()},
        "nameServerAuthFilePath": str(folder / "name-server-auth.json"),
        "nameServerAuditLogPath": str(folder / NAME_SERVER_AUDIT),
        **fixtures_go.SETTINGS,
        **test_java_transactions.SETTINGS,
        **(more or {}),
    }
    files = files or certificate_files(folder / "certificates")
    with tls_daemons(folder, files, client_certificates="optional", settings=settings) as daemons:
        secured = Secured(daemons=daemons, directory=folder, files=files)
        with secured.admin() as admin:
            for name_servers in (False, True):
                admin.create_user(APP.access_key, APP.secret_key, name_servers=name_servers)
                for resource, actions in RIGHTS.items():
                    admin.set_acl("User:app", [resource], actions, name_servers=name_servers)
        yield secured


@contextlib.contextmanager
def environment_of(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables in this process's environment, and what was there before afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
