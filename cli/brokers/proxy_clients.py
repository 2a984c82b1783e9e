"""`thermocline proxy clients`: the clients that are connected to a proxy, as its HTTP port shows them, or to any.

Those of all proxies are asked of brokers.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any

import click

from thermocline.cli.brokers.proxy_port import ask_proxy
from thermocline.cli.common.application import Application, uses_cluster

if TYPE_CHECKING:
    from thermocline.remoting.bodies.proxied_client import ListedClient

__all__ = ["clients"]

COLUMNS = ("kind", "group", "client_id", "language", "version", "address", "user", "has_stream", "long_polls")
ALL_COLUMNS = ("proxy", "kind", "group", "client_id", "language", "version", "address", "user")


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
    found = ask_proxy(app, proxy, path, member="clients")
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
