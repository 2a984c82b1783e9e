"""`thermocline topic static`: topics whose queues keep their number and offsets while brokers come and go."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from thermocline.cli.common.application import Application, uses_cluster

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.admin.static_topic_plan import StaticTopicPlan

__all__ = ["static"]

P = ParamSpec("P")
R = TypeVar("R")

_cluster = click.option("--cluster", help="Only brokers of this cluster.")
_brokers = click.option("--broker", "brokers", multiple=True, metavar="NAME", help="May be given more than once.")
_plan_file = click.option(
    "--plan",
    "plan_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the plan is written; a file in the temporary folder without it.",
)
_plan_only = click.option("--plan-only", is_flag=True, help="Write the plan, change nothing.")
_queues = click.option("--queues", type=click.IntRange(min=1), required=True, help="Logic queues in all.")
_exact = click.option(
    "--exact", is_flag=True, help="Go on right at each queue's end, not at the next block of 10000 offsets."
)


def _plans(command: Callable[P, R]) -> Callable[P, R]:
    """What every command that makes a plan takes: brokers, and where the plan goes."""
    for option in (_plan_only, _plan_file, _brokers, _cluster):
        command = option(command)
    return command


@click.group(short_help="Topics whose queues belong to no broker.")
def static() -> None:
    """Make, grow, move and look at static topics: their queues keep number and offsets while brokers come and go.

    \b
    Example:
      thermocline topic static create orders --queues 8
      thermocline topic static remap orders --broker broker-b
    """


@static.command("create", short_help="Make a static topic.")
@click.argument("name")
@_queues
@_plans
@uses_cluster
def create(
    app: Application,
    name: str,
    queues: int,
    cluster: str | None,
    brokers: tuple[str, ...],
    plan_path: Path | None,
    plan_only: bool,
) -> None:
    """Make the static topic NAME with so many queues in all, spread over the brokers.

    \b
    Example:
      thermocline topic static create orders --queues 8
    """
    with app.open_admin() as admin:
        plan = admin.plan_static_topic(name, queue_nums=queues, cluster=cluster, brokers=brokers)
        _carry_out(app, admin, plan, plan_path, plan_only=plan_only)


@static.command("grow", short_help="Give a static topic more queues.")
@click.argument("name")
@_queues
@_plans
@uses_cluster
def grow(
    app: Application,
    name: str,
    queues: int,
    cluster: str | None,
    brokers: tuple[str, ...],
    plan_path: Path | None,
    plan_only: bool,
) -> None:
    """Give the static topic NAME more queues; those that it has stay where they are.

    \b
    Example:
      thermocline topic static grow orders --queues 12
    """
    with app.open_admin() as admin:
        admin.static_topic(name)
        plan = admin.plan_static_topic(name, queue_nums=queues, cluster=cluster, brokers=brokers)
        _carry_out(app, admin, plan, plan_path, plan_only=plan_only)


@static.command("remap", short_help="Move a static topic's queues to other brokers.")
@click.argument("name")
@_plans
@_exact
@uses_cluster
def remap(
    app: Application,
    name: str,
    cluster: str | None,
    brokers: tuple[str, ...],
    exact: bool,
    plan_path: Path | None,
    plan_only: bool,
) -> None:
    """Have only the brokers that are named lead the queues of the static topic NAME, each its share.

    What the other brokers hold stays there and is read from there until it expires.

    \b
    Example:
      thermocline topic static remap orders --broker broker-b --broker broker-c
    """
    if cluster is None and not brokers:
        raise click.UsageError("Say where to: give --broker or --cluster.")
    with app.open_admin() as admin:
        plan = admin.plan_static_move(name, cluster=cluster, brokers=brokers)
        _carry_out(app, admin, plan, plan_path, plan_only=plan_only, exact=exact)


@static.command("apply", short_help="Carry out a plan from a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Also tell brokers that know something newer.")
@_exact
@uses_cluster
def apply(app: Application, file: Path, force: bool, exact: bool) -> None:
    """Carry out the plan in FILE, ours or mqadmin's: one that was only planned, or one that stopped half way.

    \b
    Example:
      thermocline topic static apply orders.plan
    """
    from thermocline.client.admin.static_topic_plan import StaticTopicPlan

    plan = StaticTopicPlan.decode(file.read_bytes())
    with app.open_admin() as admin:
        _apply(app, admin, plan, file, force=force, exact=exact)


@static.command("show", short_help="Show where a static topic's queues lie.")
@click.argument("name")
@uses_cluster
def show(app: Application, name: str) -> None:
    """Show each queue of the static topic NAME with its parts, oldest first: the last one is written to.

    \b
    Example:
      thermocline topic static show orders
    """
    with app.open_admin() as admin:
        configs = admin.static_topic(name)
    rows = []
    for broker_name, config in configs.items():
        mapping = config.mapping_detail
        for queue_id, items in ({} if mapping is None else mapping.hosted_queues).items():
            if not items or items[-1].broker_name != broker_name:
                continue
            rows += [
                {
                    "queue": queue_id,
                    "generation": item.gen,
                    "broker": item.broker_name,
                    "physical_queue": item.queue_id,
                    "first_offset": item.logic_offset,
                    "is_leader": item is items[-1],
                }
                for item in items
            ]
    app.output.rows(sorted(rows, key=lambda row: (row["queue"], row["generation"])))


def _carry_out(
    app: Application,
    admin: AdminClient,
    plan: StaticTopicPlan,
    path: Path | None,
    *,
    plan_only: bool,
    exact: bool = False,
) -> None:
    """Write the plan down, then apply it: what stops half way is applied again from the file."""
    path = path or Path(tempfile.gettempdir()) / f"{plan.topic}-{plan.epoch}.plan"
    path.write_bytes(plan.encode())
    if plan_only:
        app.output.text(f"plan written to {path}", value={"topic": plan.topic, "plan": str(path), "applied": False})
    else:
        _apply(app, admin, plan, path, force=False, exact=exact)


def _apply(
    app: Application, admin: AdminClient, plan: StaticTopicPlan, path: Path, *, force: bool, exact: bool
) -> None:
    from thermocline.client.admin.static_topic_plan import BLOCK_SIZE

    app.output.note(f"plan in {path}")
    moved = admin.apply_static_plan(plan, force=force, block_size=1 if exact else BLOCK_SIZE)
    brokers = sorted(plan.broker_config_map)
    what = f", queues moved: {', '.join(map(str, sorted(moved)))}" if moved else ""
    app.output.text(
        f"{plan.topic} set up on {', '.join(brokers)}{what}",
        value={
            "topic": plan.topic,
            "plan": str(path),
            "applied": True,
            "brokers": brokers,
            "moved": {str(queue_id): offset for queue_id, offset in sorted(moved.items())},
        },
    )
