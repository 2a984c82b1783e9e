"""Application: what every command that talks to a cluster is given.

`@uses_cluster` adds the common options to a command and hands it an `Application` as its first argument. The command
parses, makes one call on the admin client and hands the value to `app.output`.

When some of several brokers fail, the command goes on with the answers that came: its admin client keeps the failures
in `app.output`, and at its end there is one line on stderr for each, and exit status 1. No command has code for it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import click
from click.core import ParameterSource

from thermocline.cli.common.output import Failure, Output
from thermocline.cli.common.tls_flags import take_tls, tls_flags
from thermocline.remoting.errors import MQError

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.credentials import Credentials
    from thermocline.client.producer.producer import Producer
    from thermocline.remoting.tls import TlsOptions

__all__ = ["Application", "uses_cluster", "uses_one_server"]

P = ParamSpec("P")
R = TypeVar("R")

EXIT_FAILED = 1
CONNECT_TIMEOUT_MS = 3_000
DOMAIN_VARIABLE, SUBGROUP_VARIABLE = "ROCKETMQ_NAMESRV_DOMAIN", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"


@dataclass(frozen=True, slots=True)
class Application:
    """The cluster that a command talks to, and where its results go."""

    namesrv: str
    timeout_ms: int
    output: Output
    tls: TlsOptions | None = None
    """How the command's connections are encrypted; None: not at all."""
    credentials: Credentials | None = None

    @contextmanager
    def open_admin(self) -> Iterator[AdminClient]:
        """Open an admin client for one command.

        Its methods return the result of a `PartialResultError` instead of raising it, unless that has none.
        """
        from thermocline.client.admin.admin_client import AdminClient

        with AdminClient(
            namesrv=self.namesrv,
            request_timeout_ms=self.timeout_ms,
            connect_timeout_ms=min(self.timeout_ms, CONNECT_TIMEOUT_MS),
            tls=self.tls,
            credentials=self.credentials,
        ) as admin:
            yield cast("AdminClient", _GoesOn(admin, self.output))

    @contextmanager
    def open_producer(self, *, group: str) -> Iterator[Producer]:
        """Open a producer for one command."""
        from thermocline.client.producer.producer import Producer

        with Producer(
            namesrv=self.namesrv,
            group=group,
            send_timeout_ms=self.timeout_ms,
            tls=self.tls,
            credentials=self.credentials,
        ) as producer:
            yield producer


def _credentials(path: str | None, access_key: str | None, secret_key: str | None) -> Credentials | None:
    """What the command signs with: the keys of its options, else of the environment."""
    from thermocline.client.credentials import Credentials, credentials_from_file, environment_credentials

    if path is not None:
        if access_key is not None or secret_key is not None:
            raise click.UsageError("--credentials goes without --access-key and --secret-key.")
        return credentials_from_file(path)
    if access_key is None and secret_key is None:
        return environment_credentials()
    if access_key is None or secret_key is None:
        raise click.UsageError("--access-key and --secret-key go together.")
    sys.stderr.write("thermocline: --secret-key shows the key in the list of processes; use --credentials.\n")
    return Credentials(access_key=access_key, secret_key=secret_key)


def _name_servers(namesrv: str) -> str:
    """The NameServers to ask: those that were named, else those of the address server that the environment names."""
    from thermocline.remoting.clients import address_server_url

    is_named = click.get_current_context().get_parameter_source("namesrv") is not ParameterSource.DEFAULT
    domain = os.environ.get(DOMAIN_VARIABLE)
    if is_named or not domain:
        return namesrv
    return address_server_url(domain, os.environ.get(SUBGROUP_VARIABLE) or "nsaddr")


class _GoesOn:
    """An admin client whose methods return what some brokers have answered although others failed."""

    def __init__(self, admin: AdminClient, output: Output) -> None:
        self._admin = admin
        self._output = output

    def __getattr__(self, name: str) -> Any:
        from thermocline.client.fan_out import PartialResultError

        method = getattr(self._admin, name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except PartialResultError as error:
                if not error.answered or error.result is None:
                    raise
                self._output.add_failures(Failure.of(error))
                return error.result

        return call


def uses_cluster(command: Callable[Concatenate[Application, P], R]) -> Callable[P, R | int]:
    """Add the options that name the cluster and the form of the output; the command gets an `Application`."""
    return click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        default="127.0.0.1:9876",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[;...]",
        help="NameServers to ask for the cluster.",
    )(uses_one_server(command))


def uses_one_server(command: Callable[Concatenate[Application, P], R]) -> Callable[P, R | int]:
    """The same for a command that asks one server by its address, and no NameServer."""

    @click.option(
        "--timeout-ms", type=click.IntRange(min=1), default=5_000, show_default=True, help="Bound on each request."
    )
    @click.option("--json", "as_json", is_flag=True, help="Write JSON for programs instead of a table.")
    @tls_flags
    @click.option(
        "--credentials",
        "credentials_path",
        metavar="FILE",
        help="A file with the keys that requests are signed with, as RocketMQ's tools.yml.",
    )
    @click.option("--access-key", metavar="NAME", help="The user that requests are signed by.")
    @click.option("--secret-key", metavar="KEY", help="Its key. Other users of this machine see it; use --credentials.")
    @functools.wraps(command)
    def with_application(*args: P.args, **kwargs: P.kwargs) -> R | int:
        options = dict(kwargs)
        namesrv, timeout_ms, as_json = options.pop("namesrv", ""), options.pop("timeout_ms"), options.pop("as_json")
        keys = [options.pop(name) for name in ("credentials_path", "access_key", "secret_key")]
        output = Output(as_json=bool(as_json))
        try:
            credentials = _credentials(*(None if key is None else str(key) for key in keys))
        except MQError as error:
            raise click.UsageError(str(error)) from error
        app = Application(
            namesrv=_name_servers(str(namesrv)) if namesrv else "",
            timeout_ms=int(str(timeout_ms)),
            output=output,
            tls=take_tls(options),
            credentials=credentials,
        )
        return _finish(app, lambda: command(app, *args, **options))  # type: ignore[arg-type]

    return with_application


def _finish(app: Application, command: Callable[[], R]) -> R | int:
    """Run a command and show what failed; its exit status."""
    output = app.output
    status: R | int
    try:
        status = command()
    except MQError as error:
        output.add_failures(Failure.of(error))
        output.failed()
        status = EXIT_FAILED
    except click.UsageError:
        raise
    except click.ClickException as error:
        output.add_failures([Failure(sentence=error.message.removesuffix("."), error=error.message)])
        output.failed()
        status = EXIT_FAILED
    for failure in output.failures:
        sys.stderr.write(f"thermocline: {failure.sentence}.\n")
    return EXIT_FAILED if output.failures else status
