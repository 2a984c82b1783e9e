"""`thermocline quota`: bytes and requests a second of topics, groups, client addresses and users at one broker.

They are the broker's setting `quotas`: a change reads it, changes one quota, and sets it again.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["quota"]

SETTING = "quotas"
KINDS = ("topic", "group", "address", "user")


@click.group(short_help="Limit bytes and requests a second.")
def quota() -> None:
    """Limit bytes and requests a second of topics, groups, client addresses and users at a broker.

    \b
    Example:
      thermocline quota set broker-a topic orders sendBytes=1048576
    """


@quota.command("set", short_help="Set a quota.")
@click.argument("broker")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.argument("limits", nargs=-1, required=True, metavar="LIMIT=NUMBER...")
@uses_cluster
def set_(app: Application, broker: str, kind: str, name: str, limits: tuple[str, ...]) -> None:
    """Set the quota of one topic, producer or consumer group, client address or user at BROKER (name or address).

    A quota of a user needs a broker with authentication. NAME * is for each name of the kind that has no quota of its
    own. A LIMIT is sendRequests, sendBytes, readRequests or readBytes, a second; burstSeconds=N lets N seconds' worth
    come at once. It replaces the quota that was there, counts at once and is kept over restarts.

    \b
    Example:
      thermocline quota set broker-a address "*" sendRequests=1000 burstSeconds=5
    """
    with app.open_admin() as admin:
        quotas = parse(_text(admin.broker_config(broker), broker))
        quotas[kind, name] = " ".join(limits)
        admin.update_broker_config(broker, {SETTING: form(quotas)})
        now = parse(_text(admin.broker_config(broker), broker))
    app.output.rows(rows(now))


@quota.command("list", short_help="Show the quotas.")
@click.argument("broker")
@uses_cluster
def list_(app: Application, broker: str) -> None:
    """Show the quotas at BROKER (name or address).

    \b
    Example:
      thermocline quota list broker-a
    """
    with app.open_admin() as admin:
        quotas = parse(_text(admin.broker_config(broker), broker))
    app.output.rows(rows(quotas))


@quota.command("remove", short_help="Remove a quota.")
@click.argument("broker")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@uses_cluster
def remove(app: Application, broker: str, kind: str, name: str) -> None:
    """Remove a quota at BROKER (name or address), and show those that are left. One that is not there is no error.

    \b
    Example:
      thermocline quota remove broker-a topic orders
    """
    with app.open_admin() as admin:
        quotas = parse(_text(admin.broker_config(broker), broker))
        quotas.pop((kind, name), None)
        admin.update_broker_config(broker, {SETTING: form(quotas)})
    app.output.rows(rows(quotas))


def _text(config: Mapping[str, str], broker: str) -> str:
    if SETTING not in config:
        raise click.ClickException(f"{broker} has no setting {SETTING}.")
    return config[SETTING]


def parse(text: str) -> dict[tuple[str, str], str]:
    """(kind, name) -> limits, of the setting's text. The broker checks what is in it."""
    quotas = {}
    for entry in text.split(";"):
        words = entry.split(maxsplit=2)
        if len(words) == 3:
            quotas[words[0], words[1]] = words[2].strip()
    return quotas


def form(quotas: Mapping[tuple[str, str], str]) -> str:
    """The setting's text."""
    return "; ".join(f"{kind} {name} {limits}" for (kind, name), limits in quotas.items())


def rows(quotas: Mapping[tuple[str, str], str]) -> list[dict[str, object]]:
    """One row a quota."""
    return [{"kind": kind, "name": name, "limits": limits} for (kind, name), limits in quotas.items()]
