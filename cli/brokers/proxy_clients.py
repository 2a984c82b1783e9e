"""`thermocline proxy clients`: the clients that are connected to a proxy, as its HTTP port shows them."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import click

from thermocline.cli.brokers.proxy_port import ask_proxy
from thermocline.cli.common.application import Application, uses_one_server

__all__ = ["clients"]

COLUMNS = ("kind", "group", "client_id", "language", "version", "address", "user", "has_stream", "long_polls")


@click.command(short_help="Show the clients of a proxy.")
@click.option("--proxy", required=True, metavar="HOST:PORT", help="The proxy's HTTP port, its setting healthPort.")
@click.option("--group", default="", metavar="NAME", help="Those of one consumer group, or producers of one topic.")
@uses_one_server
def clients(app: Application, proxy: str, group: str) -> None:
    """Show the clients that are connected to a proxy, by what they are and by group; the topics of a producer are its
    groups. With --json settings are there, too.

    With access control the keys are those of a user that has the right Get on the cluster.

    \b
    Example:
      thermocline proxy clients --proxy 127.0.0.1:8082
    """
    path = "/clients" + (f"?{urllib.parse.urlencode({'group': group})}" if group else "")
    found = json.loads(ask_proxy(app, proxy, path))
    app.output.rows([_row(client) for client in found["clients"]], columns=COLUMNS)
    if found["total"] > len(found["clients"]):
        app.output.note(f"{found['total']} clients in all, {len(found['clients'])} are shown: name a --group")


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
