"""TLS process: ends the TLS of the broker's port, beside the hot process; started by the first TLS connection.

Its standard input is the link to the hot process (remoting/tls/terminator_link.py), and it ends when that closes, so
that it does not outlive a hot process that is killed. Settings come over the link: a password must not be in the
arguments, which every user of the machine can read.
"""

import argparse
import logging
import os
import signal
import socket

from thermocline.broker.process import LEVELS, configure_logging
from thermocline.remoting.connections import raise_descriptor_limit
from thermocline.remoting.tls import run_terminator

logger = logging.getLogger(__name__)

DESCRIPTORS_FOR_FILES, DESCRIPTORS_MIN = 64, 128


def main() -> None:
    """Entry of the module."""
    parser = argparse.ArgumentParser(prog="thermocline tls process")
    parser.add_argument("--parent-pid", type=int, required=True)  # what every helper is given
    parser.add_argument("--nice", type=int, required=True)
    parser.add_argument("--log-level", choices=LEVELS, required=True)
    arguments = parser.parse_args()
    # A stop of the broker closes the link when answers in flight are written; Ctrl-C and the supervisor come too early.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    os.nice(arguments.nice)
    configure_logging(arguments.log_level, process_name="tls")
    raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
    run_terminator(socket.socket(fileno=0))


if __name__ == "__main__":
    main()
