"""Options that the daemons share: addresses to listen on, settings by property name, and how much they log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from thermocline.broker.process import LEVELS
from thermocline.cli.common.output import discard_stdout

__all__ = [
    "broker_flags",
    "log_level_option",
    "merged_proxy_flags",
    "parse_listen",
    "parse_settings",
    "print_line",
    "proxy_options",
    "runs_daemon",
]

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])


def log_level_option(default: str) -> Callable[[Command], Command]:
    """The option `--log-level`."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default=default,
        show_default=True,
        envvar="THERMOCLINE_LOG_LEVEL",
        show_envvar=True,
        help="Log to stderr from this level up.",
    )


def proxy_options(command: Command) -> Command:
    """The options of a broker with a proxy beside it: `has_proxy`, `proxy_config`, `proxy_settings`."""
    options = (
        click.option("--proxy", "has_proxy", is_flag=True, help="Serve RocketMQ's gRPC clients, too, by a proxy."),
        click.option("--proxy-config", type=click.Path(dir_okay=False), help="rmq-proxy.json or a TOML file."),
        click.option(
            "--proxy-set",
            "proxy_settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting of the proxy, by its property name.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def merged_proxy_flags(has_proxy: bool, config_path: str | None) -> dict[str, str]:
    """Return the first two of them as settings of the broker."""
    flags = {"mergedProxyEnable": "true"} if has_proxy else {}
    return flags if config_path is None else flags | {"mergedProxyConfigPath": str(Path(config_path).resolve())}


def runs_daemon(context: click.Context) -> bool:
    """Whether a group's command runs its daemon: there is no subcommand.

    Raises:
        click.UsageError: There is one, and an option of the daemon in front of it, which would have no effect.
    """
    if context.invoked_subcommand is None:
        return True
    for parameter in context.command.params:
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{parameter.opts[0]} is an option of running a {context.info_name}: options of"
                f" {context.invoked_subcommand} come behind it."
            )
    return False


def parse_listen(option: str, text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; a usage error when it is none."""
    host, separator, port = text.rpartition(":")
    if not (separator and host and port.isdecimal() and len(port) <= 5 and int(port) < 65536):
        raise click.BadParameter(f"{text!r} is not HOST:PORT.", param_hint=option)
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_settings(texts: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping; a usage error when one is none."""
    settings: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (separator and name.strip()):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=option)
        settings[name.strip()] = value.strip()
    return settings


def broker_flags(
    *,
    data: str | None,
    namesrv: str | None,
    listen: str | None,
    advertise: str | None,
    name: str | None,
    cold: str | None,
    settings: Iterable[str],
) -> dict[str, str]:
    """Return the options that were given as settings by property name; `--set` wins over the named ones."""
    flags: dict[str, str] = {}
    if listen is not None:
        host, port = parse_listen("--listen", listen)
        flags |= {"bindAddress": host, "listenPort": str(port)}
    named = {
        "storePathRootDir": data,
        "namesrvAddr": namesrv,
        "brokerIP1": advertise,
        "brokerName": name,
        "coldUrl": cold,
    }
    flags |= {property_name: value for property_name, value in named.items() if value is not None}
    return flags | parse_settings(settings)


def print_line(line: str) -> None:
    """Print a line of a daemon, which serves all the same if its stdout is a closed pipe or on a full disk."""
    try:
        click.echo(line)
    except OSError as error:
        discard_stdout()
        logger.warning("a line cannot be printed error=%s line=%s", error.strerror or error, line)
