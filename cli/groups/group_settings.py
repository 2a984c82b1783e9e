"""`thermocline group create`, `update` and `show`: how a consumer group is set up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.parsing import DURATION, duration_text

if TYPE_CHECKING:
    from thermocline.remoting.bodies import GroupRetryPolicy

__all__ = ["create", "show", "update"]

Command = TypeVar("Command", bound=Callable[..., Any])

EXPONENTIAL, CUSTOMIZED = "EXPONENTIAL", "CUSTOMIZED"


def _setting_options(command: Command) -> Command:
    """The options that `create` and `update` share; one that is not given is None."""
    for option in reversed(
        (
            click.option(
                "--retry-max",
                type=click.IntRange(min=0),
                help="How often a message is tried again before it goes to the dead-letter topic.",
            ),
            click.option("--retry-queues", type=click.IntRange(min=0), help="Queues of the retry topic."),
            click.option(
                "--retry-delays",
                metavar="LIST",
                help="Waits before the tries of gRPC push consumers: 1s,5s,1m. Others wait as messageDelayLevel says.",
            ),
            click.option(
                "--retry-growth", metavar="FIRST,MOST,FACTOR", help="Growing waits, of gRPC push consumers: 5s,2h,2."
            ),
            click.option("--consume/--no-consume", default=None, help="Whether its members may consume."),
            click.option("--broadcast/--no-broadcast", default=None, help="Whether they may consume broadcasting."),
            click.option("--orderly/--no-orderly", default=None, help="Whether POP consumers receive in order."),
        )
    ):
        command = option(command)
    return command


@click.command("create", short_help="Create a consumer group.")
@click.argument("name")
@_setting_options
@click.option("--cluster", help="Only on this cluster's brokers.")
@click.option("--broker", help="Only on this broker, by name or address.")
@uses_cluster
def create(
    app: Application,
    name: str,
    retry_max: int | None,
    retry_queues: int | None,
    retry_delays: str | None,
    retry_growth: str | None,
    consume: bool | None,
    broadcast: bool | None,
    orderly: bool | None,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Create the consumer group NAME, or give an existing one these settings and the defaults of all others.

    \b
    Example:
      thermocline group create billing --retry-max 5 --retry-delays 10s,1m,10m
    """
    from thermocline.remoting.bodies import SubscriptionGroupConfig

    given = {
        "retry_max_times": retry_max,
        "retry_queue_nums": retry_queues,
        "group_retry_policy": _policy(retry_delays, retry_growth),
        "consume_enable": consume,
        "consume_broadcast_enable": broadcast,
        "consume_message_orderly": orderly,
    }
    changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    with app.open_admin() as admin:
        brokers = admin.create_group(
            SubscriptionGroupConfig(group_name=name, **changes), cluster=cluster, broker=broker
        )
    app.output.text(f"created {name} on {', '.join(brokers)}", value={"group": name, "brokers": brokers})


@click.command("update", short_help="Change a consumer group.")
@click.argument("name")
@_setting_options
@uses_cluster
def update(
    app: Application,
    name: str,
    retry_max: int | None,
    retry_queues: int | None,
    retry_delays: str | None,
    retry_growth: str | None,
    consume: bool | None,
    broadcast: bool | None,
    orderly: bool | None,
) -> None:
    """Change what is given of the group NAME, on every broker that has it.

    \b
    Example:
      thermocline group update billing --retry-max 5 --retry-growth 5s,2h,2
    """
    policy = _policy(retry_delays, retry_growth)
    if all(value is None for value in (retry_max, retry_queues, policy, consume, broadcast, orderly)):
        raise click.UsageError("Nothing to change: give at least one option.")
    with app.open_admin() as admin:
        brokers = admin.update_group(
            name,
            consume_enable=consume,
            consume_broadcast_enable=broadcast,
            consume_message_orderly=orderly,
            retry_max_times=retry_max,
            retry_queue_nums=retry_queues,
            retry_policy=policy,
        )
    app.output.text(f"updated {name} on {', '.join(brokers)}", value={"group": name, "brokers": brokers})


@click.command("show", short_help="Show how a consumer group is set up.")
@click.argument("name")
@uses_cluster
def show(app: Application, name: str) -> None:
    """Show the settings of the group NAME on each broker that has it.

    \b
    Example:
      thermocline group show billing
    """
    with app.open_admin() as admin:
        configs = admin.group_config(name)
    app.output.rows(
        {
            "broker": broker,
            "consume": config.consume_enable,
            "broadcast": config.consume_broadcast_enable,
            "orderly": config.consume_message_orderly,
            "retry_max": config.retry_max_times,
            "retry_queues": config.retry_queue_nums,
            "retry_waits": _policy_text(config.group_retry_policy),
        }
        for broker, config in configs.items()
    )


def _policy(delays: str | None, growth: str | None) -> GroupRetryPolicy | None:
    from thermocline.remoting.bodies import CustomizedRetryPolicy, ExponentialRetryPolicy, GroupRetryPolicy

    if delays is not None and growth is not None:
        raise click.UsageError("Give either --retry-delays or --retry-growth.")
    if delays is not None:
        waits = [DURATION.convert(part, None, None) for part in delays.split(",")]
        return GroupRetryPolicy(type=CUSTOMIZED, customized_retry_policy=CustomizedRetryPolicy(next=waits))
    if growth is not None:
        parts = growth.split(",")
        if len(parts) != 3 or not parts[2].strip().isdecimal():
            raise click.UsageError(f"{growth!r} is not FIRST,MOST,FACTOR: write 5s,2h,2.")
        first_ms, most_ms = (DURATION.convert(part, None, None) for part in parts[:2])
        exponential = ExponentialRetryPolicy(initial=first_ms, max=most_ms, multiplier=int(parts[2]))
        return GroupRetryPolicy(type=EXPONENTIAL, exponential_retry_policy=exponential)
    return None


def _policy_text(policy: GroupRetryPolicy) -> str:
    """The policy as the options write it; "default" for the broker's own delays."""
    from thermocline.remoting.bodies import ExponentialRetryPolicy

    if policy.type == EXPONENTIAL:
        exponential = policy.exponential_retry_policy or ExponentialRetryPolicy()
        first, most = duration_text(exponential.initial), duration_text(exponential.max)
        return f"{first},{most},{exponential.multiplier}"
    if policy.customized_retry_policy is not None and policy.customized_retry_policy.next:
        return ",".join(duration_text(wait_ms) for wait_ms in policy.customized_retry_policy.next)
    return "default"
