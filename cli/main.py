"""The command `thermocline`: one file per command group, this one puts them together.

Exit status: 0 done, 1 failed (one sentence on stderr), 2 misused (what was wrong with the command line, or with a
setting of a daemon). Results go to stdout, everything else to stderr. There is never a traceback for what the cluster,
the network or the user did.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from thermocline.cli.access.acl import acl
from thermocline.cli.access.user import user
from thermocline.cli.brokers.broker import broker
from thermocline.cli.brokers.cluster import cluster
from thermocline.cli.brokers.controller import controller
from thermocline.cli.brokers.dev import dev
from thermocline.cli.brokers.namesrv import namesrv
from thermocline.cli.brokers.proxy import proxy
from thermocline.cli.brokers.quota import quota
from thermocline.cli.brokers.replica import replica
from thermocline.cli.common.output import discard_stdout, open_missing_streams
from thermocline.cli.groups.group import group
from thermocline.cli.messages.message import message
from thermocline.cli.messages.producer import producer
from thermocline.cli.spark.spark import spark
from thermocline.cli.tier.cold import cold
from thermocline.cli.tier.store import store
from thermocline.cli.tier.tier import tier
from thermocline.cli.tier.ttl import ttl
from thermocline.cli.topics.topic import topic
from thermocline.remoting.errors import MQError, SettingError

__all__ = ["command_line", "main"]

EXIT_DONE, EXIT_FAILED, EXIT_MISUSED = 0, 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="thermocline")
def command_line() -> None:
    """Run and operate Thermocline: a RocketMQ compatible broker with its history in object storage.

    \b
    Example:
      thermocline dev --data ./data          NameServer and broker in one command
      thermocline topic create orders        then, in another terminal
      thermocline message send orders --body hello
    """


for _command in (
    dev,
    namesrv,
    broker,
    proxy,
    controller,
    replica,
    cluster,
    topic,
    group,
    producer,
    quota,
    message,
    ttl,
    tier,
    cold,
    store,
    user,
    acl,
    spark,
):
    command_line.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command; exits with 0, 1 or 2."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, its output included, and return its exit status."""
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode shows escapes
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed
        discard_stdout()
        return EXIT_FAILED
    except OSError as error:
        discard_stdout()
        sys.stderr.write(f"thermocline: {_sentence(error)}.\n")
        return EXIT_FAILED
    return status


def _sentence(error: OSError) -> str:
    """What went wrong, and with which file."""
    path = f" path={os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    return f"{error.strerror or error}{path}"


def _run(arguments: Sequence[str] | None) -> int:
    if not __debug__:
        sys.stderr.write("thermocline: refusing to run without assertions; start Python without -O.\n")
        return EXIT_MISUSED
    try:
        status = command_line.main(args=arguments, prog_name="thermocline", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return EXIT_MISUSED
    except click.ClickException as error:
        sys.stderr.write(f"thermocline: {error.format_message()}\n")
        return EXIT_FAILED
    except click.Abort:
        sys.stderr.write("thermocline: interrupted.\n")
        return EXIT_FAILED
    except SettingError as error:
        sys.stderr.write(f"thermocline: {error}.\n")
        return EXIT_MISUSED
    except MQError as error:
        sys.stderr.write(f"thermocline: {error}.\n")
        return EXIT_FAILED
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stderr.write(f"thermocline: {_sentence(error)}.\n")
        return EXIT_FAILED
    return status if isinstance(status, int) else EXIT_DONE
