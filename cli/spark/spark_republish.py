"""`thermocline spark republish`: send the history of a topic again, to another topic."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.common.parsing import SIZE
from thermocline.cli.spark.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["republish"]


@click.command("republish", short_help="Send the messages of a topic again, to another topic.")
@click.argument("topic")
@click.argument("target")
@click.option(
    "--namesrv",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT[;...]",
    help="NameServers of the cluster to send to.",
)
@click.option(
    "--state",
    required=True,
    metavar="DIRECTORY",
    help="New directory for the job's record; an interrupted run goes on there.",
)
@click.option(
    "--order",
    type=click.Choice(["queue", "key"]),
    default="queue",
    show_default=True,
    help="What stays in order: each source queue, or each key, which then goes to the queue of its hash.",
)
@click.option(
    "--batch-size",
    "batch_bytes",
    type=SIZE,
    default="256KiB",
    show_default=True,
    help="Bodies in one request; 2MiB at most.",
)
@click.option(
    "--may-repeat", is_flag=True, help="Go on although the target has lost what an earlier run sent, and send it again."
)
@reads_cold_tier
def republish(
    read: ColdRead,
    topic: str,
    target: str,
    namesrv: str,
    state: str,
    order: str,
    batch_bytes: int,
    may_repeat: bool,
) -> None:
    """Send the messages of TOPIC (or several, comma separated) in the cold tier to the topic TARGET, which must exist.

    Order, tags, keys, unique keys and the application's properties are kept. An interrupted run goes on when it is
    repeated, and sends nothing again that the target holds.

    \b
    Example:
      thermocline spark republish orders orders-copy --from file:///data/cold --state ./republish
    """
    from thermocline.spark.jobs.republish import republish as run_republish

    with in_session(read, f"re-publishing {topic}", output=state) as (spark, tell):
        report = run_republish(
            spark,
            read.url,
            topic=topic,
            namesrv=namesrv,
            target=target,
            state=state,
            order=order,
            batch_bytes=batch_bytes,
            may_repeat=may_repeat,
            options=read.options,
            on_progress=tell,
        )
    done = f"{report.sent_count} messages sent to {target}"
    if report.found_count:
        done += f", {report.found_count} were there already"
    if report.outcome == "finished before":
        done = f"nothing to do: {report.sent_count + report.found_count} messages had been sent to {target} before"
    read.output.text(done, value=asdict(report))
    for note in report.notes:
        read.output.note(note)
