"""The demo's servers: an object store of the chosen kind, `thermocline dev` over it, and a proxy, each a process."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
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


def _addresses(ready_line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in ready_line.split()[1:])


class DevBroker:
    """`thermocline dev` on free loopback ports."""

    def __init__(self, folder: Path, cold_url: str) -> None:
        self._log = folder / "broker.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "thermocline.cli",
                    "dev",
                    "--data",
                    str(folder / "store"),
                    *FREE_PORTS,
                    "--cold",
                    cold_url,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **SETTINGS},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise SystemExit(f"the broker did not start: {line}\n{self._log.read_text()[-2_000:]}")
        addresses = _addresses(line)
        self.name_server = addresses["namesrv"]
        self.admin = AdminClient(namesrv=self.name_server)
        self.admin.start()

    def stop(self) -> int:
        """Stop it as Ctrl-C would; its exit status."""
        self.admin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=30)

    @contextmanager
    def proxy(self) -> Iterator[str]:
        """`thermocline proxy` before it, on a free loopback port; its address."""
        command = [
            sys.executable,
            "-m",
            "thermocline.cli",
            "proxy",
            "--namesrv",
            self.name_server,
            "--listen",
            "127.0.0.1:0",
        ]
        log_path = self._log.with_name("proxy.log")
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if not line.startswith("ready "):
                raise SystemExit(f"the proxy did not start: {line}\n{log_path.read_text()[-2_000:]}")
            yield _addresses(line)["proxy"]
        finally:
            process.terminate()
            process.wait(timeout=60)

    def tier_status(self, topic: str | None = None) -> dict[str, Any]:
        """The state of the broker's cold tier, and of the messages that wait for it."""
        (status,) = self.admin.tier_status(topic).values()
        return status

    def served_bytes(self) -> int:
        """Message bytes that the broker has handed to consumers so far."""
        return int(self.tier_status()["servedBytes"])
