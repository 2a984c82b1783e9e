"""`thermocline message resend` and `consume-directly`: have a message consumed once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from thermocline.cli.common.application import Application, uses_cluster

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.received_message import ReceivedMessage

__all__ = ["consume_directly", "resend"]

GROUP = "thermocline-command"


@click.command("resend", short_help="Send a message once more.")
@click.argument("topic")
@click.argument("message_id")
@click.option("--group", default=GROUP, show_default=True, help="The producer group.")
@uses_cluster
def resend(app: Application, topic: str, message_id: str, group: str) -> None:
    """Send the message of TOPIC with this id, its producer's or its broker's, once more: for all its consumers.

    One of a retry or dead-letter topic (%DLQ%billing) goes to the topic that it was first sent to.

    \b
    Example:
      thermocline message resend orders $SENT_ID
    """
    with app.open_admin() as admin:
        found = _find(admin, topic, message_id)
    with app.open_producer(group=group) as producer:
        result = producer.send(found.to_message())
    app.output.text(
        f"sent {message_id} to {result.queue.topic} as {result.message_id}",
        value={
            "topic": result.queue.topic,
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "queue_offset": result.queue_offset,
            "message_id": result.message_id,
        },
    )


@click.command("consume-directly", short_help="Have one consumer consume a message now.")
@click.argument("topic")
@click.argument("message_id")
@click.option("--group", required=True, help="The consumer group.")
@click.option("--client-id", help="The member that consumes it; otherwise any.")
@uses_cluster
def consume_directly(app: Application, topic: str, message_id: str, group: str, client_id: str | None) -> None:
    """Have a member of a group consume the message of TOPIC with this id, and show what its listener answered.

    Offsets stay as they are. Fails unless the listener succeeds.

    \b
    Example:
      thermocline message consume-directly orders $SENT_ID --group shipping
    """
    with app.open_admin() as admin:
        found = _find(admin, topic, message_id)
        member = client_id or admin.consumer_connections(group).connection_set[0].client_id
        result = admin.consume_message_directly(group, member, found.offset_message_id, topic=topic)
    if result.consume_result != "CR_SUCCESS":
        raise click.ClickException(f"{member} answered {result.consume_result}: {result.remark or 'no remark'}.")
    app.output.text(
        f"{member} consumed it in {result.spent_time_mills} ms",
        value={
            "group": group,
            "client_id": member,
            "result": result.consume_result,
            "elapsed_ms": result.spent_time_mills,
        },
    )


def _find(admin: AdminClient, topic: str, message_id: str) -> ReceivedMessage:
    found = admin.query_by_id(topic, message_id)
    if not found:
        raise click.ClickException(f"{topic} has no message {message_id}.")
    return found[0]
