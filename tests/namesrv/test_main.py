"""The NameServer as a process: it says where it listens, and stops on SIGTERM."""

import signal
import subprocess
import sys

PROGRAM = """
from thermocline.namesrv.main import main
from thermocline.namesrv.name_server_config import NameServerConfig
main(
    NameServerConfig(listen_host="127.0.0.1", listen_port=0),
    on_ready=lambda address: print("ready", address, flush=True),
)
"""


def test_it_stops_cleanly_on_sigterm() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready 127.0.0.1:")
            assert not ready.endswith(":0\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
