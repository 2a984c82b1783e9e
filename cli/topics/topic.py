"""`thermocline topic`: create, change, delete, list and look at topics."""

from __future__ import annotations

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.parsing import parse_pairs
from thermocline.cli.topics.static_topic import static

__all__ = ["topic"]

PERMS = {"r": 4, "w": 2, "rw": 6}


@click.group(short_help="Create, change, delete, list and look at topics.")
def topic() -> None:
    """Create, change, delete, list and look at topics.

    \b
    Example:
      thermocline topic create orders --queues 8
    """


@topic.command("create", short_help="Create a topic.")
@click.argument("name")
@click.option("--queues", type=click.IntRange(min=1), default=8, show_default=True, help="Queues on each broker.")
@click.option("--perm", type=click.Choice(sorted(PERMS)), default="rw", show_default=True, help="What is allowed.")
@click.option("--order", is_flag=True, help="Mark the topic as ordered.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="May be given more than once.")
@click.option("--cluster", help="Only on this cluster's brokers.")
@click.option("--broker", help="Only on this broker, by name or address.")
@uses_cluster
def create(
    app: Application,
    name: str,
    queues: int,
    perm: str,
    order: bool,
    attributes: tuple[str, ...],
    cluster: str | None,
    broker: str | None,
) -> None:
    """Create the topic NAME, or give an existing one these settings and the defaults of the options not given.

    \b
    Example:
      thermocline topic create orders --queues 8 --attribute message.type=FIFO
    """
    with app.open_admin() as admin:
        brokers = admin.create_topic(
            name,
            queue_nums=queues,
            perm=PERMS[perm],
            order=order,
            attributes=parse_pairs(attributes, option="--attribute"),
            cluster=cluster,
            broker=broker,
        )
    app.output.text(
        f"created {name} with {queues} queues on {', '.join(brokers)}",
        value={"topic": name, "queues": queues, "brokers": brokers},
    )


@topic.command("update", short_help="Change a topic.")
@click.argument("name")
@click.option("--read-queues", type=click.IntRange(min=1), help="Queues to read from, on each broker.")
@click.option("--write-queues", type=click.IntRange(min=1), help="Queues to write to, on each broker.")
@click.option("--perm", type=click.Choice(sorted(PERMS)), help="What is allowed.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Set an attribute.")
@click.option("--remove-attribute", "removed", multiple=True, metavar="NAME", help="Remove an attribute.")
@click.option("--broker", help="Only on this broker, by name or address.")
@uses_cluster
def update(
    app: Application,
    name: str,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    attributes: tuple[str, ...],
    removed: tuple[str, ...],
    broker: str | None,
) -> None:
    """Change what is given of the topic NAME, on every broker that has it or on one.

    To take queues away, first lower --write-queues, and --read-queues once they are consumed.

    \b
    Example:
      thermocline topic update orders --read-queues 16 --write-queues 16
    """
    changes: dict[str, str | None] = {**parse_pairs(attributes, option="--attribute"), **dict.fromkeys(removed)}
    if read_queues is None and write_queues is None and perm is None and not changes:
        raise click.UsageError("Nothing to change: give at least one option.")
    with app.open_admin() as admin:
        brokers = admin.update_topic(
            name,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=None if perm is None else PERMS[perm],
            attributes=changes,
            broker=broker,
        )
    app.output.text(f"updated {name} on {', '.join(brokers)}", value={"topic": name, "brokers": brokers})


@topic.command("delete", short_help="Delete a topic and all its messages.")
@click.argument("name")
@click.option("--cluster", help="Only on this cluster's brokers.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@uses_cluster
def delete(app: Application, name: str, cluster: str | None, yes: bool) -> None:
    """Delete the topic NAME with all its messages, hot and cold.

    \b
    Example:
      thermocline topic delete orders --yes
    """
    if not yes:
        click.confirm(f"Delete {name} and all its messages?", abort=True, err=True)
    with app.open_admin() as admin:
        brokers = admin.delete_topic(name, cluster=cluster)
    app.output.text(f"deleted {name} from {', '.join(brokers)}", value={"topic": name, "brokers": brokers})


@topic.command("list", short_help="List topics.")
@click.option("--cluster", help="Only topics of this cluster.")
@click.option("--all", "include_system", is_flag=True, help="Also system, retry and dead-letter topics.")
@uses_cluster
def list_(app: Application, cluster: str | None, include_system: bool) -> None:
    """List the topics, without those of the system.

    \b
    Example:
      thermocline topic list --json
    """
    with app.open_admin() as admin:
        names = admin.list_topics(cluster=cluster, include_system=include_system)
    app.output.rows({"topic": name} for name in names)


@topic.command("status", short_help="Show what a topic's queues hold.")
@click.argument("name")
@uses_cluster
def status(app: Application, name: str) -> None:
    """Show the first and the next offset of every queue of the topic NAME, hot and cold together.

    \b
    Example:
      thermocline topic status orders
    """
    with app.open_admin() as admin:
        stats = admin.topic_stats(name)
    app.output.rows(
        {
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "messages": one.message_count,
            "last_update_timestamp_ms": one.last_update_timestamp_ms,
        }
        for one in stats
    )


@topic.command("route", short_help="Show which brokers have a topic.")
@click.argument("name")
@uses_cluster
def route(app: Application, name: str) -> None:
    """Show the brokers of the topic NAME with their addresses, queues and settings.

    \b
    Example:
      thermocline topic route orders
    """
    with app.open_admin() as admin:
        found = admin.topic_route(name)
        configs = admin.topic_config(name)
    rows = []
    for broker in found.brokers:
        config = configs.get(broker.broker_name)
        rows.append(
            {
                "cluster": broker.cluster,
                "broker": broker.broker_name,
                "id": broker.broker_id,
                "address": broker.address,
                "read_queues": None if config is None else config.read_queue_nums,
                "write_queues": None if config is None else config.write_queue_nums,
                "perm": None if config is None else _perm_text(config.perm),
                "attributes": {} if config is None else config.attributes,
            }
        )
    app.output.rows(rows)


@topic.command("consumers", short_help="Show who consumes a topic.")
@click.argument("name")
@uses_cluster
def consumers(app: Application, name: str) -> None:
    """Show the groups that consume the topic NAME or have offsets in it.

    \b
    Example:
      thermocline topic consumers orders
    """
    with app.open_admin() as admin:
        groups = admin.topic_consumers(name)
    app.output.rows({"group": group} for group in groups)


topic.add_command(static)


def _perm_text(perm: int) -> str:
    return ("r" if perm & 4 else "-") + ("w" if perm & 2 else "-") + ("x" if perm & 1 else "-")
