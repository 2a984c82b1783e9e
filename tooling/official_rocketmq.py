"""The official Apache RocketMQ NameServer, controller, broker and proxy (Java), on loopback, as peer and baseline.

They need no distribution: the published jars, one configuration file each and ROCKETMQ_HOME set to any directory. Logs
go below `user.home`, so that is set too. A broker uses its port, port - 2 (fast path) and port + 1 (replication).

A clean end takes up to 20 s (it unregisters and flushes), and until the process is gone the store is locked.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from thermocline.localstack.child_process import ChildProcess
from thermocline.localstack.loopback_port import LOOPBACK, free_port, is_listening
from tooling.official_jvm import OPEN_MODULES, QUICK_BROKER, quick_jvm

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
PORTS_PER_BROKER = 4
_given_blocks: set[int] = set()

# What upstream's runbroker.sh sets, with a heap that fits a small machine: for measurements.
SHORT_SCANS = {"scanNotActiveBrokerInterval": "1000", "scanInactiveMasterInterval": "1000"}
BENCHMARK_JVM_OPTIONS = (
    "-Xms4g",
    "-Xmx4g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:+AlwaysPreTouch",
    "-XX:MaxDirectMemorySize=2g",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialSoftware:
    """Where Java and the official jars are."""

    java_home: Path
    jars: Path

    def command(self, main_class: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """The command line that runs one of their main classes."""
        return [str(self.java_home / "bin" / "java"), *options, "-cp", f"{self.jars}/*", main_class, *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """One of the daemons, serving."""

    address: str
    process: ChildProcess


@contextlib.contextmanager
def official_namesrv(
    software: OfficialSoftware,
    directory: Path,
    *,
    properties: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[RunningDaemon]:
    """Run a NameServer; its files are in `directory`. `properties` are added to its configuration, `options` to the
    JVM's."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    configuration = _write_properties(
        directory / "namesrv.conf",
        {
            "listenPort": str(port),
            "bindAddress": LOOPBACK,
            "kvConfigPath": str(directory / "kvConfig.json"),
            "configStorePath": str(directory / "namesrv.properties"),
            **(properties or {}),
        },
    )
    command = software.command(
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        "-c",
        str(configuration),
        options=[*quick_jvm(directory, heap_mb=128), *options],
    )
    with _daemon(command, directory, port, ends_cleanly=False) as daemon:
        yield daemon


@contextlib.contextmanager
def official_controller(
    software: OfficialSoftware, directory: Path, *, properties: Mapping[str, str] | None = None
) -> Iterator[RunningDaemon]:
    """Run a controller that is alone; its files are in `directory`. `properties`: else its scans come every second."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    configuration = _write_properties(
        directory / "controller.conf",
        {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-{LOOPBACK}:{port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(directory / "store"),
            **(SHORT_SCANS if properties is None else properties),
        },
    )
    command = software.command(
        "org.apache.rocketmq.controller.ControllerStartup",
        "-c",
        str(configuration),
        options=[*quick_jvm(directory, heap_mb=512), *OPEN_MODULES],
    )
    with _daemon(command, directory, port, ends_cleanly=False) as daemon:
        yield daemon


@contextlib.contextmanager
def official_broker(
    software: OfficialSoftware,
    directory: Path,
    *,
    namesrv_address: str,
    store_directory: Path,
    properties: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] | None = None,
    options: Sequence[str] = (),
    ends_cleanly: bool = False,
) -> Iterator[RunningDaemon]:
    """Run a broker over `store_directory`; `properties` are added to its configuration, `options` to the JVM's.

    With `jvm_options` it runs as shipped, in a JVM with these: for figures. Without, see `tooling/official_jvm.py`.
    At the end it is killed, which saves many seconds; `ends_cleanly` stops it, for a store that is opened again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = free_broker_port()
    more = {**({} if jvm_options else QUICK_BROKER), **(properties or {})}
    configuration = _broker_configuration(directory, port, namesrv_address, store_directory, more)
    command = software.command(
        "org.apache.rocketmq.broker.BrokerStartup",
        "-c",
        str(configuration),
        options=[*_jvm(directory, jvm_options), *options, *OPEN_MODULES],
    )
    with _daemon(command, directory, port, ends_cleanly=ends_cleanly) as daemon:
        yield daemon


@contextlib.contextmanager
def official_proxy(
    software: OfficialSoftware,
    directory: Path,
    *,
    namesrv_address: str,
    store_directory: Path | None = None,
    properties: Mapping[str, str] | None = None,
    proxy_settings: Mapping[str, object] | None = None,
    jvm_options: Sequence[str] | None = None,
) -> Iterator[RunningDaemon]:
    """Run a proxy for gRPC: by itself, or with a broker over `store_directory` in its process (local mode).

    `properties` are added to that broker's configuration, `proxy_settings` to the proxy's. `jvm_options`: see
    `official_broker`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings: dict[str, object] = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
    }
    settings.update(proxy_settings or {})
    arguments = ["-pc", str(directory / "rmq-proxy.json"), "-n", namesrv_address]
    if store_directory is None:
        settings |= {"proxyMode": "CLUSTER", "namesrvAddr": namesrv_address}
    else:
        more = {**({} if jvm_options else QUICK_BROKER), **(properties or {})}
        broker = _broker_configuration(directory, free_broker_port(), namesrv_address, store_directory, more)
        arguments += ["-pm", "local", "-bc", str(broker)]
    (directory / "rmq-proxy.json").write_text(json.dumps(settings))
    command = software.command(
        "org.apache.rocketmq.proxy.ProxyStartup",
        *arguments,
        options=[*_jvm(directory, jvm_options), *OPEN_MODULES],
    )
    with _daemon(command, directory, port, ends_cleanly=False, ready="startup successfully") as daemon:
        yield daemon


def free_broker_port() -> int:
    """A port for a broker: it, the two below and the one above are free, and no client gets them by chance. This
    process gets none of the four again: several brokers may be given their ports before the first one starts."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        block = random.randrange(12_000 // PORTS_PER_BROKER, first_ephemeral // PORTS_PER_BROKER)
        ports = range(block * PORTS_PER_BROKER, (block + 1) * PORTS_PER_BROKER)
        if block not in _given_blocks and not any(map(is_listening, ports)):
            _given_blocks.add(block)
            return ports[2]


def _jvm(directory: Path, options: Sequence[str] | None) -> list[str]:
    return [f"-Duser.home={directory}", *options] if options else quick_jvm(directory, heap_mb=512)


def _broker_configuration(
    directory: Path, port: int, namesrv_address: str, store_directory: Path, properties: Mapping[str, str]
) -> Path:
    return _write_properties(
        directory / "broker.conf",
        {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "bindAddress": LOOPBACK,
            "brokerIP1": LOOPBACK,
            "listenPort": str(port),
            "namesrvAddr": namesrv_address,
            "storePathRootDir": str(store_directory),
            "storePathCommitLog": str(store_directory / "commitlog"),
            "autoCreateTopicEnable": "true",
            **properties,
        },
    )


@contextlib.contextmanager
def _daemon(
    command: Sequence[str], directory: Path, port: int, *, ends_cleanly: bool, ready: str = "boot success"
) -> Iterator[RunningDaemon]:
    process = ChildProcess(
        command,
        log_path=directory / "stdout.log",
        working_directory=directory,
        environment={"ROCKETMQ_HOME": str(directory), "RMQ_PROXY_HOME": str(directory)},
    )
    try:
        process.wait_until(lambda: is_listening(port) and ready in process.output(), timeout_s=START_TIMEOUT_S)
        yield RunningDaemon(address=f"{LOOPBACK}:{port}", process=process)
    finally:
        if ends_cleanly:
            process.stop(timeout_s=STOP_TIMEOUT_S)
        else:
            process.kill()


def _write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
