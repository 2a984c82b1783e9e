"""The options by which a command says whose users and policies are meant."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

__all__ = ["at_holders", "check_copied"]

Command = TypeVar("Command", bound=Callable[..., Any])


def at_holders(command: Command) -> Command:
    """Add `--cluster`, `--broker` and `--name-servers`; the command gets them as `at`, for the admin client."""

    def with_holders(*args: Any, cluster: str | None, broker: str | None, name_servers: bool, **kwargs: Any) -> Any:
        if name_servers and (cluster or broker):
            raise click.UsageError("--name-servers goes without --cluster and --broker.")
        return command(*args, at={"cluster": cluster, "broker": broker, "name_servers": name_servers}, **kwargs)

    with_holders.__doc__ = command.__doc__
    with_holders.__name__ = command.__name__
    if hasattr(command, "__click_params__"):
        with_holders.__click_params__ = command.__click_params__  # type: ignore[attr-defined]
    for option in (
        click.option("--name-servers", is_flag=True, help="At the NameServers, which have users of their own."),
        click.option("--broker", help="Only at this broker, by name or address."),
        click.option("--cluster", help="Only at this cluster's brokers."),
    ):
        with_holders = option(with_holders)
    return with_holders  # type: ignore[return-value]


def check_copied(names: Collection[str], there: Collection[str], *, broker: str, what: str) -> None:
    """Fail, before anything is copied, where one of the names is not there."""
    missing = sorted(set(names).difference(there))
    if missing:
        raise click.ClickException(f"{broker} has no {what} {', '.join(missing)}; nothing is copied.")
