"""The demo's servers: an object store of the chosen kind, `thermocline dev` over it, and a proxy, each a process.

Several brokers of one name: replica_set.py.
"""

import contextlib
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermocline import AdminClient

FREE_PORTS = ("--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0")
BUCKET = "thermocline-demo"

# A year of flights is small for a broker: small files, so that all of it is sealed, uploaded and deleted locally while
# the demo runs. Real brokers keep the defaults.
SETTINGS = {
    "THERMOCLINE_MAPPED_FILE_SIZE_COMMIT_LOG": str(16 << 20),
    "THERMOCLINE_FILE_RESERVED_TIME": "0",
    "THERMOCLINE_DELETE_WHEN": "",
    "THERMOCLINE_COLD_SEGMENT_BYTES": str(16 << 20),
    "THERMOCLINE_COLD_SEAL_AGE_MS": "3000",
    "THERMOCLINE_BROKER_NAME": "demo-broker",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStore:
    """The place of the cold tier: its URL for the broker, and for Spark."""

    broker_url: str
    spark_url: str
    spark_options: dict[str, str]


@contextmanager
def cold_store(kind: str, folder: Path) -> Iterator[ColdStore]:
    """An object store on this machine: a directory, or a real S3 server that ends with the demo."""
    if kind == "file":
        url = f"file://{folder / 'cold'}"
        yield ColdStore(broker_url=url, spark_url=url, spark_options={})
        return
    from thermocline.localstack import start_server

    with start_server(kind, folder / kind) as server:
        server.make_bucket(BUCKET)
        query = f"endpoint={server.endpoint}&region={server.region}&path_style=true"
        os.environ["AWS_ACCESS_KEY_ID"] = server.access_key
        os.environ["AWS_SECRET_ACCESS_KEY"] = server.secret_key
        yield ColdStore(
            broker_url=f"s3://{BUCKET}/tier?{query}",
            spark_url=f"s3a://{BUCKET}/tier",
            spark_options={
                "fs.s3a.endpoint": server.endpoint,
                "fs.s3a.endpoint.region": server.region,
                "fs.s3a.path.style.access": "true",
                "fs.s3a.access.key": server.access_key,
                "fs.s3a.secret.key": server.secret_key,
            },
        )


class Daemon:
    """A process of `thermocline`; made when its ready line has come. Its log is `NAME.log` in the folder."""

    def __init__(self, folder: Path, name: str, *words: str, settings: Mapping[str, str] | None = None) -> None:
        log_path = folder / f"{name}.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "thermocline.cli", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(settings or {})},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line.startswith("ready "):
            self.kill()
            raise SystemExit(f"{name} did not start: {line}\n{log_path.read_text()[-2_000:]}")
        self.addresses = dict(part.split("=", 1) for part in line.split()[1:])

    def stop(self) -> int:
        """Stop it as Ctrl-C would; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(timeout=60)


class DemoCluster(ABC):
    """What the demo asks of its brokers: a NameServer's address, an admin client, figures of the cold tier."""

    def __init__(self, folder: Path, name_server: str) -> None:
        self._folder = folder
        self.name_server = name_server
        self.admin = AdminClient(namesrv=name_server)
        self.admin.start()

    @abstractmethod
    def stop(self) -> int:
        """Stop all brokers; their worst exit status."""

    @contextmanager
    def proxy(self) -> Iterator[str]:
        """`thermocline proxy` before it, on a free loopback port; its address."""
        words = ("proxy", "--namesrv", self.name_server, "--listen", "127.0.0.1:0")
        process = Daemon(self._folder, "proxy", *words)
        try:
            yield process.addresses["proxy"]
        finally:
            process.stop()

    def tier_status(self, topic: str | None = None) -> dict[str, Any]:
        """The state of the broker's cold tier, and of the messages that wait for it."""
        (status,) = self.admin.tier_status(topic).values()
        return status

    def served_bytes(self) -> int:
        """Message bytes that the broker has handed to consumers so far."""
        return int(self.tier_status()["servedBytes"])


class DevBroker(DemoCluster):
    """`thermocline dev` on free loopback ports."""

    def __init__(self, folder: Path, cold_url: str) -> None:
        words = ("dev", "--data", str(folder / "store"), *FREE_PORTS, "--cold", cold_url)
        self._daemon = Daemon(folder, "broker", *words, settings=SETTINGS)
        super().__init__(folder, self._daemon.addresses["namesrv"])

    def stop(self) -> int:
        """Stop it; its exit status."""
        self.admin.close()
        return self._daemon.stop()
