"""`thermocline proxy rules`: the routing rules that are in force at a proxy, as its HTTP port shows them."""

from __future__ import annotations

import click

from thermocline.cli.brokers.proxy_port import ask_proxy
from thermocline.cli.common.application import Application, uses_one_server

__all__ = ["rules"]

COLUMNS = ("number", "topic", "group", "user", "address", "cluster", "also_read")


@click.command(short_help="Show the routing rules of a proxy.")
@click.option("--proxy", required=True, metavar="HOST:PORT", help="The proxy's HTTP port, its setting healthPort.")
@uses_one_server
def rules(app: Application, proxy: str) -> None:
    """Show the routing rules that are in force at a proxy, in their order: the first one that fits counts. An empty
    condition always holds. Where the file has changed and is refused, a note on stderr says why.

    With access control the keys are those of a user that has the right Get on the cluster.

    \b
    Example:
      thermocline proxy rules --proxy 127.0.0.1:8082
    """
    found = ask_proxy(app, proxy, "/rules", member="rules")
    rows = [
        {
            "number": number,
            **{name: rule.get(name, "") for name in ("topic", "group", "user", "address", "cluster")},
            "also_read": ",".join(rule.get("alsoRead", ())),
        }
        for number, rule in enumerate(found["rules"], start=1)
    ]
    app.output.rows(rows, columns=COLUMNS)
    if found["refusal"]:
        app.output.note(f"the file as it is now is refused, and the rules from before are in force: {found['refusal']}")
