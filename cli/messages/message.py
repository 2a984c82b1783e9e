"""`thermocline message`: send, recall, read, find and trace messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import click
from click.core import ParameterSource

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.message_rows import COLUMNS, body_text
from thermocline.cli.common.output import Failure, Row
from thermocline.cli.common.parsing import DURATION, MOMENT, parse_pairs
from thermocline.cli.messages.message_again import consume_directly, resend
from thermocline.cli.messages.message_trace import trace

if TYPE_CHECKING:
    from thermocline.client.received_message import ReceivedMessage

__all__ = ["message"]

GROUP = "thermocline-command"


@click.group(short_help="Send, read, find and trace messages.")
def message() -> None:
    """Send, read, find and trace messages.

    \b
    Example:
      thermocline message send orders --body hello --key 4711
    """


@message.command("send", short_help="Send a message, or a file's lines.")
@click.argument("topic")
@click.option("--body", help="The body, as text.")
@click.option("--file", "file", type=click.File("rb"), help="Send each line of a file as a message; - is stdin.")
@click.option("--tag", default="", help="The tag.")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be given more than once.")
@click.option("--sharding-key", default="", help="Messages with equal sharding keys go to one queue.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be given more than once.")
@click.option("--delay", "delay_ms", type=DURATION, help="Have it delivered so much later: 90s, 12h or 1d12h.")
@click.option("--deliver-at", "deliver_at_ms", type=MOMENT, help="Have it delivered then: an ISO time, or ms.")
@click.option("--group", "group", default=GROUP, show_default=True, help="The producer group.")
@uses_cluster
def send(
    app: Application,
    topic: str,
    body: str | None,
    file: BinaryIO | None,
    tag: str,
    keys: tuple[str, ...],
    sharding_key: str,
    properties: tuple[str, ...],
    delay_ms: int | None,
    deliver_at_ms: int | None,
    group: str,
) -> None:
    """Send one message to TOPIC, or one for each line of a file.

    \b
    Example:
      thermocline message send orders --body '{"id": 4711}' --tag paid --key 4711
    """
    from thermocline.client.message import Message
    from thermocline.client.producer.send_many import SendManyError
    from thermocline.client.send_result import SendResult

    if (body is None) == (file is None):
        raise click.UsageError("Give either --body or --file.")
    if delay_ms is not None and deliver_at_ms is not None:
        raise click.UsageError("Give either --delay or --deliver-at.")
    pairs = parse_pairs(properties, option="--property")
    bodies = [os.fsencode(body)] if body is not None else _lines(file)

    def messages() -> Iterator[Message]:
        try:
            for one in bodies:
                yield Message(
                    topic,
                    one,
                    tags=tag,
                    keys=keys,
                    sharding_key=sharding_key,
                    properties=pairs,
                    delay_ms=delay_ms or 0,
                    deliver_at_ms=deliver_at_ms,
                )
        except KeyboardInterrupt:  # while the next line was waited for: those before it are shown
            app.output.add_failures([Failure(sentence="interrupted", error="interrupted")])

    with app.open_producer(group=group) as producer, app.output.progress() as progress:
        task = progress.add_task("sending", total=None)
        try:
            results = producer.send_many(progress.track(messages(), task_id=task))
        except SendManyError as error:
            results = [outcome for outcome in error.outcomes if isinstance(outcome, SendResult)]
            app.output.add_failures(Failure.of(error))
    app.output.rows(
        {
            "status": one.status.value,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "queue_offset": one.queue_offset,
            "message_id": one.message_id,
            **({} if one.recall_handle is None else {"recall_handle": one.recall_handle}),
        }
        for one in results
    )


@message.command("recall", short_help="Take back a message that waits for its time.")
@click.argument("handle")
@click.option("--group", "group", default=GROUP, show_default=True, help="The producer group.")
@uses_cluster
def recall(app: Application, handle: str, group: str) -> None:
    """Take back a message by the recall HANDLE that `message send` has shown, unless its time has come.

    The broker allows it when its setting recallMessageEnable is true.

    \b
    Example:
      thermocline message recall $HANDLE
    """
    with app.open_producer(group=group) as producer:
        message_id = producer.recall(handle)
    app.output.text(f"{message_id} is not delivered, if it still waits", value={"message_id": message_id})


@message.command("pull", short_help="Read a topic's messages.")
@click.argument("topic")
@click.option("--broker", help="Only this broker's queues.")
@click.option("--queue", type=click.IntRange(min=0), help="Only the queue with this number.")
@click.option("--offset", type=click.IntRange(min=0), help="Begin at this queue offset instead of the first message.")
@click.option("--since", "since_ms", type=MOMENT, help="Begin at the first message stored since: an ISO time, or ms.")
@click.option("--count", type=click.IntRange(min=1), default=32, show_default=True, help="At most so many a queue.")
@click.option("--tag", help="Only these tags: a || b.")
@click.option("--sql", help='Only messages whose properties fulfil an SQL92 expression: "price > 5".')
@click.option("--full", is_flag=True, help="Show whole bodies.")
@uses_cluster
def pull(
    app: Application,
    topic: str,
    broker: str | None,
    queue: int | None,
    offset: int | None,
    since_ms: int | None,
    count: int,
    tag: str | None,
    sql: str | None,
    full: bool,
) -> None:
    """Read messages of TOPIC, from the cold tier too, without being in a consumer group.

    `--sql` needs brokers with `enablePropertyFilter`.

    \b
    Example:
      thermocline message pull orders --queue 0 --since 2026-05-01 --count 100
    """
    if tag is not None and sql is not None:
        raise click.UsageError("Give either --tag or --sql.")
    if offset is not None and since_ms is not None:
        raise click.UsageError("Give either --offset or --since.")
    with app.open_admin() as admin, app.output.progress() as progress:
        progress.add_task("reading", total=None)
        found = admin.pull_topic(
            topic,
            count_max=count,
            offset=offset,
            since_ms=since_ms,
            broker=broker,
            queue_id=queue,
            expression=tag or "*" if sql is None else sql,
            expression_type="TAG" if sql is None else "SQL92",
        )
    app.output.rows((_row(one, full=full or app.output.as_json) for one in found), columns=COLUMNS)


@message.command("query", short_help="Find messages by key or id.")
@click.argument("topic")
@click.option("--key", help="Messages with this key.")
@click.option("--id", "message_id", help="The message with this id, its producer's or its broker's.")
@click.option("--since", "since_ms", type=MOMENT, default=0, help="With --key: only stored since: an ISO time, or ms.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="With --key: at most so many a broker.",
)
@click.option("--full", is_flag=True, help="Show whole bodies.")
@uses_cluster
def query(
    app: Application,
    topic: str,
    key: str | None,
    message_id: str | None,
    since_ms: int,
    count: int,
    full: bool,
) -> None:
    """Find messages of TOPIC by key or by id, in the cold tier too.

    \b
    Example:
      thermocline message query orders --key 4711
    """
    if (key is None) == (message_id is None):
        raise click.UsageError("Give either --key or --id.")
    context = click.get_current_context()
    if message_id is not None and any(
        context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in ("since_ms", "count")
    ):
        raise click.UsageError("--since and --count go with --key: an id names one message.")
    with app.open_admin() as admin:
        if key is not None:
            found = admin.query_by_key(topic, key, count_max=count, begin_timestamp_ms=since_ms)
        else:
            assert message_id is not None
            found = admin.query_by_id(topic, message_id)
    app.output.rows((_row(one, full=full or app.output.as_json) for one in found), columns=COLUMNS)


@message.command("resume-check", short_help="Have producers asked again how a transaction ended.")
@click.argument("message_id")
@uses_cluster
def resume_check(app: Application, message_id: str) -> None:
    """Have the producers of a message asked again, by its offset message id, how its transaction ended.

    For messages in TRANS_CHECK_MAX_TIME_TOPIC: those that producers were asked about too often without knowing.

    \b
    Example:
      thermocline message resume-check $MESSAGE_ID
    """
    with app.open_admin() as admin:
        admin.resume_check_half_message(message_id)
    app.output.text(f"producers are asked about {message_id} again", value={"offset_message_id": message_id})


def _row(message: ReceivedMessage, *, full: bool) -> Row:
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "reconsume_times": message.reconsume_times,
        "properties": dict(message.properties),
        "body": body_text(message.body, full=full),
    }


def _lines(file: BinaryIO | None) -> Iterator[bytes]:
    assert file is not None
    for line in file:
        stripped = line.rstrip(b"\r\n")
        if stripped:
            yield stripped


for _command in (trace, resend, consume_directly):
    message.add_command(_command)
