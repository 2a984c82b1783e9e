"""A master of a replica set without a broker: a store, its port for slaves, and its place at a controller and a
NameServer."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from tests.waiting import wait_until
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies import RegisterBrokerBody
from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.headers.controller import ApplyBrokerIdRequestHeader, ElectMasterRequestHeader
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, RegisterBrokerRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.replication import AutoSwitchMasterSession, EpochFile, ReplicationSettings, SlaveHandshake
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.message_store import MessageStore

NAME, CLUSTER = "broker-a", "DefaultCluster"
SILENCE_MS_MAX = 600_000
POLL_S = 0.05


class WireMaster:
    """Replica number 1. `close` ends it."""

    def __init__(self, directory: Path, *, file_bytes: int, controller: str, namesrv: str) -> None:
        self.disk = RealDisk()
        self.config = StoreConfig(root_path=str(directory), log_file_bytes=file_bytes)
        self.store = MessageStore.open(self.config, disk=self.disk, clock=wall_clock_ms)
        self.epoch_file = EpochFile(self.disk, str(directory))
        self.lock = threading.Lock()
        """Held while the store is used."""
        self.slaves: list[SlaveHandshake] = []
        self._is_over = self._drops = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(POLL_S)
        self._controller, self._namesrv = map(_connect, (controller, namesrv))
        self._register()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        for each in (self._listener, self._controller, self._namesrv):
            each.close()
        self.store.close()

    def drop_slave(self) -> None:
        """End the present connection."""
        self._drops = True

    def _register(self) -> None:
        address = f"127.0.0.1:{free_port()}"
        ha_address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        apply = ApplyBrokerIdRequestHeader(
            cluster_name=CLUSTER, broker_name=NAME, applied_broker_id=1, register_check_code=f"{address};1"
        )
        wait_until(
            lambda: ask(self._controller, RemotingCommand.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)) == 0,
            what="a controller leads",
        )
        assert (
            ask(
                self._controller,
                RemotingCommand.request(
                    RequestCode.BROKER_HEARTBEAT,
                    BrokerHeartbeatRequestHeader(
                        cluster_name=CLUSTER,
                        broker_addr=address,
                        broker_name=NAME,
                        broker_id=1,
                        epoch=1,
                        heartbeat_timeout_mills=SILENCE_MS_MAX,
                    ),
                ),
            )
            == 0
        )
        elect = ElectMasterRequestHeader(cluster_name=CLUSTER, broker_name=NAME, broker_id=1)
        assert ask(self._controller, RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, elect)) == 0
        assert (
            ask(
                self._namesrv,
                RemotingCommand.request(
                    RequestCode.REGISTER_BROKER,
                    RegisterBrokerRequestHeader(
                        broker_name=NAME,
                        broker_addr=address,
                        cluster_name=CLUSTER,
                        ha_server_addr=ha_address,
                        broker_id=0,
                        heartbeat_timeout_millis=SILENCE_MS_MAX,
                    ),
                    body=RegisterBrokerBody().encode(),
                ),
            )
            == 0
        )

    def _serve(self) -> None:
        while not self._is_over:
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection, _ = self._listener.accept()
                with connection:
                    self._serve_slave(connection)

    def _serve_slave(self, connection: socket.socket) -> None:
        self._drops = False
        log = self.store.commit_log
        session = AutoSwitchMasterSession(
            log,
            self.epoch_file.epochs,
            ReplicationSettings(heartbeat_interval_ms=500),
            confirm_offset=lambda: log.append_offset,
            now_ms=_steady_ms(),
        )
        while not self._is_over and not self._drops:
            connection.settimeout(POLL_S)
            with contextlib.suppress(TimeoutError):
                data = connection.recv(1 << 16)
                if not data:
                    return
                session.receive(data, now_ms=_steady_ms())
                if session.slave is not None and session.slave not in self.slaves:
                    self.slaves.append(session.slave)
            connection.settimeout(None)
            connection.sendall(session.take_reply())
            with self.lock:
                while (transfer := session.next_transfer(now_ms=_steady_ms())) is not None:
                    connection.sendall(transfer.head)
                    if transfer.size_bytes:
                        connection.sendall(log.record_view(transfer.offset, transfer.size_bytes))


def ask(connection: socket.socket, command: RemotingCommand) -> int:
    """Send a request and wait for its answer's code."""
    connection.sendall(command.encode())
    received = b""
    while len(received) < LENGTH.size or len(received) < LENGTH.size + LENGTH.unpack_from(received)[0]:
        data = connection.recv(1 << 16)
        assert data, "the connection has ended"
        received += data
    return decode_command(received[LENGTH.size :]).code


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _steady_ms() -> int:
    return int(monotonic_ms())
