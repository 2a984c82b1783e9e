"""The flags by which a command speaks TLS; each has its variable (client/tls_environment.py), and the flag wins.

A password has no flag: every user of the machine can read the arguments of a process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from thermocline.remoting.errors import InvalidParameterError

if TYPE_CHECKING:
    from thermocline.remoting.tls import TlsOptions

__all__ = ["take_tls", "tls_flags"]

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAGS = {"tls_ca": "CA", "tls_cert": "CERT", "tls_key": "KEY", "tls_server_name": "SERVER_NAME"}


def tls_flags(command: Command) -> Command:
    """Add the flags; `take_tls` makes options of them."""
    for decorate in reversed(
        (
            click.option("--tls", is_flag=True, help="Encrypt connections to NameServers and brokers."),
            click.option("--tls-ca", metavar="FILE", help="Authorities to trust, PEM, instead of the system's."),
            click.option("--tls-cert", metavar="FILE", help="The client's certificate, PEM."),
            click.option("--tls-key", metavar="FILE", help="Its key, PEM."),
            click.option("--tls-server-name", metavar="NAME", help="The name that servers' certificates must have."),
            click.option("--tls-no-verify", is_flag=True, help="Do not check servers' certificates: for tests alone."),
        )
    ):
        command = decorate(command)
    return command


def take_tls(options: dict[str, Any]) -> TlsOptions | None:
    """Take the flags out of a command's options; None: without TLS.

    Raises:
        click.UsageError: They contradict each other, or a variable is wrong.
    """
    from thermocline.client.tls_environment import TLS_VARIABLE, tls_of_environment

    is_on, is_unchecked = options.pop("tls"), options.pop("tls_no_verify")
    details = {name: value for name in _FLAGS if (value := options.pop(name)) is not None}
    environment = dict(os.environ)
    if is_on:
        environment[TLS_VARIABLE] = "true"
    elif (details or is_unchecked) and environment.get(TLS_VARIABLE, "").strip().lower() != "true":
        flag = f"--{min(details, default='tls_no_verify').replace('_', '-')}"
        raise click.UsageError(f"{flag} says how TLS is spoken: add --tls.")
    environment |= {f"{TLS_VARIABLE}_{_FLAGS[name]}": value for name, value in details.items()}
    if is_unchecked:
        environment[f"{TLS_VARIABLE}_VERIFY"] = "false"
    try:
        return tls_of_environment(environment)
    except InvalidParameterError as error:
        raise click.UsageError(f"{error}.") from error
