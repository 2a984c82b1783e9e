"""Application: what every command that talks to a cluster is given.

`@uses_cluster` adds the common options to a command and hands it an `Application` as its first argument. The command
parses, makes one call on the admin client and hands the value to `app.output`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from thermocline.cli.output import Output

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.producer.producer import Producer

__all__ = ["Application", "uses_cluster"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Application:
    """The cluster that a command talks to, and where its results go."""

    namesrv: str
    timeout_ms: int
    output: Output

    @contextmanager
    def open_admin(self, *, timeout_ms: int | None = None) -> Iterator[AdminClient]:
        """Open an admin client for one command; `timeout_ms` replaces the common one for slow requests."""
        from thermocline.client.admin.admin_client import AdminClient

        with AdminClient(namesrv=self.namesrv, request_timeout_ms=timeout_ms or self.timeout_ms) as admin:
            yield admin

    @contextmanager
    def open_producer(self, *, group: str) -> Iterator[Producer]:
        """Open a producer for one command."""
        from thermocline.client.producer.producer import Producer

        with Producer(namesrv=self.namesrv, group=group, send_timeout_ms=self.timeout_ms) as producer:
            yield producer


def uses_cluster(command: Callable[Concatenate[Application, P], R]) -> Callable[P, R]:
    """Add the options that name the cluster and the form of the output; the command gets an `Application`."""

    @click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        default="127.0.0.1:9876",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[;...]",
        help="NameServers to ask for the cluster.",
    )
    @click.option("--timeout-ms", type=click.IntRange(min=1), default=5_000, show_default=True, help="Per request.")
    @click.option("--json", "as_json", is_flag=True, help="Write JSON for programs instead of a table.")
    @functools.wraps(command)
    def with_application(*args: P.args, **kwargs: P.kwargs) -> R:
        options = dict(kwargs)
        namesrv, timeout_ms, as_json = options.pop("namesrv"), options.pop("timeout_ms"), options.pop("as_json")
        app = Application(namesrv=str(namesrv), timeout_ms=int(str(timeout_ms)), output=Output(as_json=bool(as_json)))
        return command(app, *args, **options)  # type: ignore[arg-type]

    return with_application
