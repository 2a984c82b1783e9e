"""`thermocline message trace`: what happened to one message."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.remoting.topic_validation import TRACE_TOPIC

if TYPE_CHECKING:
    from thermocline.cli.common.output import Row
    from thermocline.client.admin.message_trace import TraceStep

__all__ = ["trace"]

COLUMNS = ("written_timestamp_ms", "step", "group", "client", "cost_ms", "outcome", "retries")


@click.command("trace", short_help="Show what happened to a message.")
@click.argument("message_id")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Where clients write their traces.")
@uses_cluster
def trace(app: Application, message_id: str, trace_topic: str) -> None:
    """Show who sent the message with this id, its producer's, and who consumed it how.

    Clients record this when tracing is on (`enable_trace`), some seconds later. A key will do for the id.

    \b
    Example:
      thermocline message trace $TRACED_ID
    """
    with app.open_admin() as admin:
        steps = admin.message_trace(message_id, trace_topic=trace_topic)
    app.output.rows((_row(step) for step in steps), columns=COLUMNS)


def _row(step: TraceStep) -> Row:
    from thermocline.client.trace.trace_records import PublishTrace, SubscribeBeforeTrace

    record = step.record
    row: dict[str, object] = {
        "written_timestamp_ms": record.timestamp_ms,
        "group": record.group,
        "client": step.client_host,
        "cost_ms": None,
        "outcome": None,
        "retries": None,
    }
    fields = dataclasses.asdict(record)
    match record:
        case PublishTrace():
            kind = fields.pop("kind")
            outcome = "SUCCESS" if record.succeeded else "FAILED"
            row |= {"step": "sent", "cost_ms": record.cost_ms, "outcome": outcome, "kind": kind.name}
        case SubscribeBeforeTrace():
            row |= {"step": "received", "retries": fields.pop("retry_times")}
        case _:
            row |= {"step": "consumed", "cost_ms": record.cost_ms, "outcome": record.outcome.name}
    return row | {name: value for name, value in fields.items() if name not in row and name != "timestamp_ms"}
