"""`thermocline proxy clients`: the clients that are connected to a proxy, as its HTTP port shows them, or to any.

The request to a proxy is HTTP/1.1 with Basic authentication, as Prometheus sends it; TLS and keys are those of every
command. Those of all proxies are asked of brokers.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import urllib.parse
from typing import TYPE_CHECKING, Any

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.remoting.errors import PermissionDeniedError, UnavailableError
from thermocline.remoting.socket_address import format_address, parse_address

if TYPE_CHECKING:
    from thermocline.remoting.bodies.proxied_client import ListedClient

__all__ = ["clients"]

COLUMNS = ("kind", "group", "client_id", "language", "version", "address", "user", "has_stream", "long_polls")
ALL_COLUMNS = ("proxy", "kind", "group", "client_id", "language", "version", "address", "user")
ANSWER_BYTES_MAX = 64 << 20


@click.command(short_help="Show the clients of one proxy, or of all.")
@click.option("--proxy", metavar="HOST:PORT", help="A proxy's HTTP port, its setting healthPort [all proxies].")
@click.option("--group", default="", metavar="NAME", help="Those of one consumer group, or producers of one topic.")
@uses_cluster
def clients(app: Application, proxy: str | None, group: str) -> None:
    """Show the gRPC clients of all proxies, as these report them to brokers, or of one, by what they are and by group;
    the topics of a producer are its groups. With --json settings are there, too.

    With access control the keys are those of a user that has the right Get on the cluster.

    \b
    Example:
      thermocline proxy clients --group billing
      thermocline proxy clients --proxy 127.0.0.1:8082
    """
    if proxy is None:
        _show_all(app, group)
        return
    path = "/clients" + (f"?{urllib.parse.urlencode({'group': group})}" if group else "")
    found = json.loads(_get(app, proxy, path))
    app.output.rows([_row(client) for client in found["clients"]], columns=COLUMNS)
    _note_total(app, found["total"], len(found["clients"]))


def _show_all(app: Application, group: str) -> None:
    with app.open_admin() as admin:
        found = admin.proxied_clients(group=group or None)
    app.output.rows([_reported_row(each) for each in found.clients], columns=ALL_COLUMNS)
    _note_total(app, found.total, len(found.clients))


def _note_total(app: Application, total: int, shown: int) -> None:
    if total > shown:
        app.output.note(f"{total} clients in all, {shown} are shown: name a --group")


def _reported_row(listed: ListedClient) -> dict[str, object]:
    client = listed.client
    return {
        "proxy": listed.proxy,
        "kind": client.kind,
        "group": ",".join(client.groups),
        "client_id": client.client_id,
        "language": client.language,
        "version": client.version,
        "address": client.address,
        "user": client.user,
        "settings": {
            "requestTimeoutMs": client.request_timeout_ms,
            "subscriptions": {each.topic: each.expression for each in client.subscriptions},
        },
    }


def _row(client: dict[str, Any]) -> dict[str, object]:
    more = client["groupCount"] - len(client["groups"])
    return {
        "kind": client["kind"],
        "group": ",".join(client["groups"]) + (f" and {more} more" if more else ""),
        "client_id": client["clientId"],
        "language": client["language"],
        "version": client["version"],
        "address": client["address"],
        "user": client["user"],
        "has_stream": client["hasStream"],
        "long_polls": client["longPolls"],
        "settings": client["settings"],
    }


def _get(app: Application, address: str, path: str) -> bytes:
    """The answer of a proxy's HTTP port.

    Raises:
        InvalidParameterError: The address is none.
        PermissionDeniedError: The keys are not those of a user that may read it.
        UnavailableError: There is no such port.
    """
    host, port = parse_address(address)
    connection = http.client.HTTPConnection(host, port)
    headers = {}
    if app.credentials is not None:
        keys = f"{app.credentials.access_key}:{app.credentials.secret_key}"
        headers["Authorization"] = f"Basic {base64.b64encode(keys.encode()).decode()}"
    try:
        connection.sock = _connected(app, host, port)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        reason = "it is no HTTP port" if isinstance(error, http.client.HTTPException) else str(error)
        raise UnavailableError(
            "the proxy does not answer", address=format_address(host, port), reason=reason
        ) from error
    finally:
        connection.close()
    if answer.status == http.HTTPStatus.UNAUTHORIZED:
        raise PermissionDeniedError("the keys are not those of a user with Get on the cluster", address=address)
    if answer.status != http.HTTPStatus.OK:
        raise UnavailableError("the port is none of a proxy", address=address, status=answer.status)
    return body


def _connected(app: Application, host: str, port: int) -> socket.socket:
    from thermocline.remoting.tls import ClientTls

    plain = socket.create_connection((host, port), timeout=app.timeout_ms / 1000)
    if app.tls is None:
        return plain
    tls = ClientTls(app.tls)
    try:
        return tls.context().wrap_socket(plain, server_hostname=tls.server_name(host))
    except (OSError, ssl.SSLError):
        plain.close()
        raise
