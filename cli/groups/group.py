"""`thermocline group`: list consumer groups, see how far they are, set them up, move them, delete them."""

from __future__ import annotations

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.groups.group_members import connections, members
from thermocline.cli.groups.group_offsets import clone_offsets, reset_offset, skip
from thermocline.cli.groups.group_settings import create, show, update

__all__ = ["group"]


@click.group(short_help="Set up, watch, move and delete consumer groups.")
def group() -> None:
    """Set up consumer groups, see how far they are, move them, delete them.

    \b
    Example:
      thermocline group progress billing
    """


@group.command("list", short_help="List consumer groups.")
@click.option("--cluster", help="Only groups of this cluster.")
@click.option("--all", "include_system", is_flag=True, help="Also the brokers' own groups.")
@uses_cluster
def list_(app: Application, cluster: str | None, include_system: bool) -> None:
    """List the consumer groups, without the brokers' own.

    \b
    Example:
      thermocline group list --json
    """
    with app.open_admin() as admin:
        names = admin.list_groups(cluster=cluster, include_system=include_system)
    app.output.rows({"group": name} for name in names)


@group.command("progress", short_help="Show how far a group is.")
@click.argument("name")
@click.option("--topic", help="Only this topic.")
@uses_cluster
def progress(app: Application, name: str, topic: str | None) -> None:
    """Show, for every queue that the group NAME has an offset in, how many messages it has not consumed.

    \b
    Example:
      thermocline group progress billing --topic orders
    """
    with app.open_admin() as admin:
        rows = admin.group_progress(name, topic=topic)
        if not rows and not app.output.failures and name not in admin.list_groups(include_system=True):
            raise click.ClickException(f"There is no group {name}.")
    app.output.rows(
        {
            "topic": one.queue.topic,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "broker_offset": one.broker_offset,
            "consumer_offset": one.consumer_offset,
            "lag": one.lag,
            "last_timestamp_ms": one.last_timestamp_ms,
        }
        for one in rows
    )
    if rows and not app.output.as_json:
        app.output.note(f"lag in all: {sum(one.lag for one in rows)}")


@group.command("set-mode", short_help="Let a group pull or pop a topic.")
@click.argument("name")
@click.option("--topic", required=True, help="The topic that it reads.")
@click.option("--mode", type=click.Choice(["pull", "pop"]), required=True, help="How its push consumers read it.")
@click.option(
    "--share-queues",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With how many others each member shares its queues when it pops; 0: all members read all queues.",
)
@click.option("--broker", help="Only on this broker.")
@click.option("--cluster", help="Only on this cluster's brokers.")
@uses_cluster
def set_mode(
    app: Application,
    name: str,
    topic: str,
    mode: str,
    share_queues: int,
    broker: str | None,
    cluster: str | None,
) -> None:
    """Let the push consumers of the group NAME pull or pop a topic, where they leave balancing to the broker.

    \b
    Example:
      thermocline group set-mode billing --topic orders --mode pop
    """
    with app.open_admin() as admin:
        brokers = admin.set_request_mode(
            name, topic, mode.upper(), pop_share_queues=share_queues, cluster=cluster, broker=broker
        )
    app.output.text(
        f"{name} reads {topic} by {mode} on {', '.join(brokers)}",
        value={"group": name, "topic": topic, "mode": mode, "brokers": brokers},
    )


@group.command("delete", short_help="Delete a group.")
@click.argument("name")
@click.option("--offsets", "clean_offsets", is_flag=True, help="Its offsets too: it then begins anew.")
@click.option("--cluster", help="Only on this cluster's brokers.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@uses_cluster
def delete(app: Application, name: str, clean_offsets: bool, cluster: str | None, yes: bool) -> None:
    """Delete the group NAME with its retry and dead-letter topics. If there is none, it fails.

    \b
    Example:
      thermocline group delete billing --offsets --yes
    """
    if not yes:
        click.confirm(f"Delete {name} with its retry and dead-letter messages?", abort=True, err=True)
    with app.open_admin() as admin:
        brokers = admin.delete_group(name, clean_offsets=clean_offsets, cluster=cluster)
    app.output.text(f"deleted {name} from {', '.join(brokers)}", value={"group": name, "brokers": brokers})


for _command in (create, update, show, connections, members, reset_offset, skip, clone_offsets):
    group.add_command(_command)
