"""`thermocline namesrv config`, `kv`, `wipe-write-perm` and `add-write-perm`: NameServers that run.

What is changed is changed on every NameServer that is named: they know nothing of each other.
"""

from __future__ import annotations

import click

from thermocline.cli.brokers.daemon_settings import changed_rows, check_names, matching_rows
from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["add_write_perm", "config", "kv", "wipe_write_perm"]


@click.group(short_help="Read and change settings of running NameServers.")
def config() -> None:
    """Read and change settings of running NameServers.

    \b
    Example:
      thermocline namesrv config get --match order
    """


@config.command("get", short_help="Show the NameServers' settings.")
@click.option("--match", default="", help="Only names that contain this, whatever its case.")
@uses_cluster
def get(app: Application, match: str) -> None:
    """Show the settings of every NameServer by their property names.

    \b
    Example:
      thermocline namesrv config get --match order
    """
    with app.open_admin() as admin:
        configs = admin.namesrv_config()
    app.output.rows(matching_rows(configs, daemon="namesrv", match=match))


@config.command("set", short_help="Change the NameServers' settings.")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE...")
@uses_cluster
def set_(app: Application, changes: tuple[str, ...]) -> None:
    """Change settings of every NameServer; a name that one of them does not have is an error.

    \b
    Example:
      thermocline namesrv config set orderMessageEnable=true
    """
    from thermocline.cli.common.daemon_options import parse_settings

    wanted = parse_settings(changes)
    with app.open_admin() as admin:
        check_names(admin.namesrv_config(), wanted)
        admin.update_namesrv_config(wanted)
        now = admin.namesrv_config()
    app.output.rows(changed_rows(now, daemon="namesrv", names=wanted))


@click.group(short_help="Read and change the NameServers' key-value configuration.")
def kv() -> None:
    """Read and change the key-value configuration of the NameServers.

    \b
    Example:
      thermocline namesrv kv put ORDER_TOPIC_CONFIG invoices broker-a:4
    """


@kv.command("list", short_help="Show the values of a namespace.")
@click.argument("namespace")
@uses_cluster
def list_(app: Application, namespace: str) -> None:
    """Show the values of NAMESPACE.

    \b
    Example:
      thermocline namesrv kv list ORDER_TOPIC_CONFIG
    """
    with app.open_admin() as admin:
        values = admin.list_kv(namespace)
    app.output.rows({"key": key, "value": value} for key, value in sorted(values.items()))


@kv.command("put", short_help="Store a value.")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@uses_cluster
def put(app: Application, namespace: str, key: str, value: str) -> None:
    """Store VALUE under KEY of NAMESPACE.

    \b
    Example:
      thermocline namesrv kv put ORDER_TOPIC_CONFIG invoices broker-a:4
    """
    with app.open_admin() as admin:
        admin.put_kv(namespace, key, value)
    app.output.text(f"{key} is {value}", value={"namespace": namespace, "key": key, "value": value})


@kv.command("delete", short_help="Remove a value.")
@click.argument("namespace")
@click.argument("key")
@uses_cluster
def delete(app: Application, namespace: str, key: str) -> None:
    """Remove the value under KEY of NAMESPACE; it is an error if there is none.

    \b
    Example:
      thermocline namesrv kv delete ORDER_TOPIC_CONFIG invoices
    """
    with app.open_admin() as admin:
        if admin.get_kv(namespace, key) is None:
            raise click.ClickException(f"{namespace} has no {key}.")
        admin.delete_kv(namespace, key)
    app.output.text(f"{key} is gone", value={"namespace": namespace, "key": key})


@click.command("wipe-write-perm", short_help="Route no more sends to a broker.")
@click.argument("broker")
@uses_cluster
def wipe_write_perm(app: Application, broker: str) -> None:
    """Have the NameServers route no more sends to the broker with the name BROKER; its messages are still consumed.

    A broker whose topics change, or that registers anew, is routed to again: to take one out of service, set its
    brokerPermission to 4 as well.

    \b
    Example:
      thermocline namesrv wipe-write-perm broker-a
    """
    with app.open_admin() as admin:
        count = _check(broker, admin.wipe_write_permission(broker))
    app.output.text(f"no more sends to {count} topics of {broker}", value={"broker": broker, "topics": count})


@click.command("add-write-perm", short_help="Route sends to a broker again.")
@click.argument("broker")
@uses_cluster
def add_write_perm(app: Application, broker: str) -> None:
    """Undo `wipe-write-perm` for the broker with the name BROKER.

    \b
    Example:
      thermocline namesrv add-write-perm broker-a
    """
    with app.open_admin() as admin:
        count = _check(broker, admin.add_write_permission(broker))
    app.output.text(f"sends to {count} topics of {broker} again", value={"broker": broker, "topics": count})


def _check(broker: str, count: int) -> int:
    if not count:
        raise click.ClickException(f"No topic of a broker {broker} is known.")
    return count
