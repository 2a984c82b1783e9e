"""`thermocline broker`: run a broker; `config`, `runtime`, `stats` and `clean` are for one that runs."""

from __future__ import annotations

import click

from thermocline.cli.brokers.broker_config import config, runtime
from thermocline.cli.brokers.broker_operations import clean, stats
from thermocline.cli.common.daemon_options import (
    broker_flags,
    log_level_option,
    merged_proxy_flags,
    parse_settings,
    print_line,
    proxy_options,
    runs_daemon,
)

__all__ = ["broker"]


@click.group(invoke_without_command=True, short_help="Run a broker, or inspect a running one.")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="broker.conf or a TOML file.")
@click.option("--data", metavar="DIR", help="Where the store is [~/store].")
@click.option("--namesrv", metavar="HOST:PORT[;...]", help="NameServers to register with [$NAMESRV_ADDR].")
@click.option("--listen", metavar="HOST:PORT", help="Port 0: a free one [127.0.0.1:10911].")
@click.option("--advertise", metavar="ADDRESS", help="The IP address that clients connect to, if not the one bound.")
@click.option("--name", metavar="NAME", help="The broker's name [broker-a].")
@click.option("--cold", metavar="URL", help="The cold tier: file:///dir or s3://bucket/prefix?endpoint=...")
@click.option(
    "--recover-from",
    metavar="URL",
    help="Make the store, if it is empty, from this cold tier, whose broker has lost its disk; then run on it.",
)
@click.option(
    "--read-only-from",
    metavar="URL",
    help="Serve the history of another broker from its cold tier, beside it; take no message.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any setting, by its property name.")
@proxy_options
@click.option("--single-process", is_flag=True, help="Run the helpers in this process, for debugging.")
@log_level_option("INFO")
@click.pass_context
def broker(
    context: click.Context,
    config_path: str | None,
    data: str | None,
    namesrv: str | None,
    listen: str | None,
    advertise: str | None,
    name: str | None,
    cold: str | None,
    recover_from: str | None,
    read_only_from: str | None,
    settings: tuple[str, ...],
    has_proxy: bool,
    proxy_config: str | None,
    proxy_settings: tuple[str, ...],
    single_process: bool,
    log_level: str,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C; without a subcommand.

    Settings come from the file, the environment and these options; the later wins. Prints one line
    `ready broker=HOST:PORT cold=URL` when it serves; with --proxy, `proxy=HOST:PORT remoting=HOST:PORT` is on it, too.

    With --proxy, a proxy for RocketMQ's clients (gRPC, remoting) runs beside the broker, as one of its processes. Needs
    the extra `proxy`.

    With --recover-from, the lines before it list the recovered topics, and the losses of each. A store that was
    recovered from there before is started as it is. Name and cluster are those of the broker that was lost.
    A slave that is started as its set's master prints what it has taken over before that line, too.

    With --read-only-from, the broker needs a directory of its own, and registers under a name of its own: its source's
    with `-read-only` behind it, unless the settings name another.

    \b
    Example:
      thermocline broker --data ./store --namesrv 127.0.0.1:9876 --cold file:///var/lib/thermocline/cold
    """
    if not runs_daemon(context):
        return
    from thermocline.broker.main import BrokerArguments, run

    if len({url for url in (cold, recover_from, read_only_from) if url is not None}) > 1:
        raise click.UsageError("--cold, --recover-from and --read-only-from name more than one cold tier.")
    if recover_from is not None and read_only_from is not None:
        raise click.UsageError("A broker either takes its cold tier over or serves it read-only.")
    cold = recover_from or read_only_from or cold
    flags = merged_proxy_flags(has_proxy, proxy_config) | broker_flags(
        data=data, namesrv=namesrv, listen=listen, advertise=advertise, name=name, cold=cold, settings=settings
    )
    arguments = BrokerArguments(
        config_path=config_path,
        flags=flags,
        log_level=log_level,
        single_process=single_process,
        recover_from=recover_from,
        read_only_from=read_only_from,
        proxy_flags=parse_settings(proxy_settings, option="--proxy-set"),
    )
    run(
        arguments,
        on_ready=lambda ready: print_line(f"ready broker={ready.broker} cold={ready.cold_url}{ready.proxy_fields}"),
        on_recovered=print_line,
    )


broker.add_command(config)
broker.add_command(runtime)
broker.add_command(stats)
broker.add_command(clean)
