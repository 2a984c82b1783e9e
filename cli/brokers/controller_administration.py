"""`thermocline controller status`, `elect`, `clean` and `config`: controllers that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from thermocline.cli.brokers.daemon_settings import changed_rows, check_names, matching_rows
from thermocline.cli.common.application import Application, uses_one_server

if TYPE_CHECKING:
    from thermocline.remoting.bodies.replica import ReplicasInfo

__all__ = ["clean", "config", "elect", "status"]

P = ParamSpec("P")
R = TypeVar("R")

SET_COLUMNS = ("broker_name", "broker_id", "address", "role", "alive", "master_epoch", "set_epoch")


def uses_controllers(command: Callable[Concatenate[Application, str, P], R]) -> Callable[P, R | int]:
    """Add the option that names the controllers; the command gets an `Application` and their addresses."""

    @click.option(
        "-a",
        "--controllers",
        envvar="THERMOCLINE_CONTROLLERS",
        default="127.0.0.1:9878",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[;...]",
        help="Controllers of one group, or one of them.",
    )
    @uses_one_server
    def with_controllers(app: Application, /, *args: P.args, **kwargs: P.kwargs) -> R:
        options = dict(kwargs)
        controllers = str(options.pop("controllers"))
        # No NameServer is asked; an admin client has to have one all the same.
        return command(replace(app, namesrv=controllers), controllers, *args, **options)  # type: ignore[arg-type]

    return wraps(command)(with_controllers)


@click.command("status", short_help="Show controllers and replica sets.")
@uses_controllers
def status(app: Application, controllers: str) -> None:
    """Show each controller, and every replica with its role, from the tables of the leading controller.

    \b
    Example:
      thermocline controller status -a 127.0.0.1:9878
    """
    with app.open_admin() as admin:
        found = admin.controller_status(controllers)
    leading = next((one for one in found.values() if one.is_leader), None)
    sets = leading or next(iter(found.values()), None)
    replicas = [] if sets is None else [row for item in sets.replica_sets.items() for row in _replicas(*item)]
    nodes = [
        {
            "controller": address,
            "node": one.node,
            "role": "failed" if one.failure else "leader" if one.is_leader else "follower",
            "leader": one.leader,
            "term": one.term,
            "applied": one.applied,
            "live_brokers": one.live_brokers,
            "failure": one.failure,
            "refused": one.refused,
        }
        for address, one in found.items()
    ]
    if app.output.as_json:
        app.output.value({"controllers": nodes, "replicas": replicas})
        return
    app.output.rows(nodes, columns=("controller", "node", "role", "leader", "term", "applied", "live_brokers"))
    if replicas:
        app.output.rows(replicas, columns=SET_COLUMNS)


@click.command("elect", short_help="Make a replica the master.")
@click.argument("broker")
@click.argument("replica", type=click.IntRange(min=1))
@click.option("--cluster", default="DefaultCluster", show_default=True, help="The cluster of the brokers.")
@click.option(
    "--pause-ms",
    type=click.IntRange(min=0, max=10_000),
    default=3_000,
    show_default=True,
    help="How long the present master may refuse sends; 0: elect at once.",
)
@uses_controllers
def elect(app: Application, controllers: str, broker: str, replica: int, cluster: str, pause_ms: int) -> None:
    """Make the replica with the number REPLICA of the broker name BROKER the master.

    It has to be alive and in the SyncStateSet. The present master, if it answers, refuses sends until the replica has
    its whole log: nothing that was acknowledged is lost. If that takes longer than --pause-ms, none is elected.

    \b
    Example:
      thermocline controller elect broker-a 2
    """
    with app.open_admin() as admin:
        elected = admin.elect_master(
            controllers, cluster=cluster, broker_name=broker, broker_id=replica, pause_ms=pause_ms
        )
    app.output.text(
        f"{broker}: replica {elected.broker_id} at {elected.address} is the master, epoch {elected.master_epoch}",
        value={
            "broker_name": broker,
            "broker_id": elected.broker_id,
            "address": elected.address,
            "master_epoch": elected.master_epoch,
            "set_epoch": elected.sync_state_set_epoch,
        },
    )


@click.command("clean", short_help="Forget replicas.")
@click.argument("broker")
@click.option("--broker-id", "broker_ids", multiple=True, type=click.IntRange(min=1), help="This replica alone.")
@click.option("--cluster", default="DefaultCluster", show_default=True, help="The cluster of the brokers.")
@click.option("--living", is_flag=True, help="Forget them even if they are alive.")
@uses_controllers
def clean(
    app: Application, controllers: str, broker: str, broker_ids: tuple[int, ...], cluster: str, living: bool
) -> None:
    """Have the controllers forget replicas of the broker name BROKER, by default all of them and their master.

    Epochs of a name begin anew when all its replicas, or all that are in sync, are forgotten: the first broker that
    asks then becomes the master, whatever its log holds.

    \b
    Example:
      thermocline controller clean broker-a --broker-id 3
    """
    with app.open_admin() as admin:
        admin.clean_broker_data(controllers, cluster=cluster, broker_name=broker, broker_ids=broker_ids, living=living)
    what = f"replicas {', '.join(map(str, broker_ids))}" if broker_ids else "all replicas"
    app.output.text(f"{what} of {broker} are forgotten", value={"broker_name": broker, "broker_ids": list(broker_ids)})


@click.group(short_help="Read and change settings of running controllers.")
def config() -> None:
    """Read and change settings of running controllers.

    \b
    Example:
      thermocline controller config get --match elect
    """


@config.command("get", short_help="Show the controllers' settings.")
@click.option("--match", default="", help="Only names that contain this, whatever its case.")
@uses_controllers
def get(app: Application, controllers: str, match: str) -> None:
    """Show the settings of each controller by their property names.

    \b
    Example:
      thermocline controller config get --match elect
    """
    with app.open_admin() as admin:
        configs = admin.controller_config(controllers)
    app.output.rows(matching_rows(configs, daemon="controller", match=match))


@config.command("set", short_help="Change the controllers' settings.")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE...")
@uses_controllers
def set_(app: Application, controllers: str, changes: tuple[str, ...]) -> None:
    """Change settings of each controller that is named.

    \b
    Example:
      thermocline controller config set notifyBrokerRoleChanged=true
    """
    from thermocline.cli.common.daemon_options import parse_settings

    wanted = parse_settings(changes)
    with app.open_admin() as admin:
        check_names(admin.controller_config(controllers), wanted)
        admin.update_controller_config(controllers, wanted)
        now = admin.controller_config(controllers)
    app.output.rows(changed_rows(now, daemon="controller", names=wanted))


def _replicas(broker_name: str, found: ReplicasInfo) -> Iterator[dict[str, Any]]:
    in_sync = {replica.broker_id for replica in found.in_sync_replicas}
    for replica in (*found.in_sync_replicas, *found.not_in_sync_replicas):
        is_master = replica.broker_id == found.master_broker_id
        yield {
            "broker_name": broker_name,
            "broker_id": replica.broker_id,
            "address": replica.broker_address,
            "role": "master" if is_master else "in sync" if replica.broker_id in in_sync else "not in sync",
            "alive": replica.alive,
            "master_epoch": found.master_epoch,
            "set_epoch": found.sync_state_set_epoch,
        }
