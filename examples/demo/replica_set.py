"""The demo's replica set: brokers of one name, three controllers that elect their master, and a NameServer."""

import contextlib
from pathlib import Path

from cluster import SETTINGS, Daemon, DemoCluster

from thermocline import MQError
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies.replica import ReplicasInfo

CONTROLLERS = 3
CONTROLLED = {
    "THERMOCLINE_ENABLE_CONTROLLER_MODE": "true",
    # A send is acknowledged when all that are in sync have it: a master that dies takes nothing with it.
    "THERMOCLINE_ALL_ACK_IN_SYNC_STATE_SET": "true",
    "THERMOCLINE_BROKER_HEARTBEAT_INTERVAL": "500",
    # A broker that comes back follows a log that still begins before its own ends; see `forget_history`.
    "THERMOCLINE_FILE_RESERVED_TIME": "1",
}


class ReplicaSet(DemoCluster):
    """So many brokers, numbered from 1 as the controllers number them."""

    def __init__(self, folder: Path, cold_url: str, *, size: int) -> None:
        self.numbers = range(1, size + 1)
        self._cold_url = cold_url
        self._others = [Daemon(folder, "namesrv", "namesrv", "--listen", "127.0.0.1:0")]
        self._brokers: dict[int, Daemon] = {}
        self._ports = {number: (free_port(), free_port()) for number in self.numbers}
        """Of a broker, and for its slaves: the same after each start."""
        peers = [f"n{index}-127.0.0.1:{free_port()}" for index in range(CONTROLLERS)]
        self._controllers = ";".join(peer.partition("-")[2] for peer in peers)
        try:
            for peer in peers:
                name = peer.partition("-")[0]
                words = ("controller", "--data", str(folder / name), "--peers", ";".join(peers), "--id", name)
                self._others.append(Daemon(folder, f"controller-{name}", *words))
            super().__init__(folder, self._others[0].addresses["namesrv"])
            for number in self.numbers:
                self.start(number)
        except BaseException:
            self.kill_all()
            raise

    def start(self, number: int) -> None:
        """Start a broker, on the store that it had."""
        port, slaves_port = self._ports[number]
        words = ("--namesrv", self.name_server, "--listen", f"127.0.0.1:{port}", "--cold", self._cold_url)
        settings = {
            **SETTINGS,
            **CONTROLLED,
            "THERMOCLINE_CONTROLLER_ADDR": self._controllers,
            "THERMOCLINE_HA_LISTEN_PORT": str(slaves_port),
        }
        data = str(self._folder / f"store-{number}")
        self._brokers[number] = Daemon(
            self._folder, f"broker-{number}", "broker", "--data", data, *words, settings=settings
        )

    def kill(self, number: int) -> None:
        """Kill a broker, as `kill -9` does."""
        self._brokers.pop(number).kill()

    def forget_history(self) -> None:
        """Have the master delete local files as soon as the bucket has them."""
        self.admin.update_broker_config(SETTINGS["THERMOCLINE_BROKER_NAME"], {"fileReservedTime": "0"})

    def state(self) -> ReplicasInfo:
        """Master and replicas as the controllers have them; empty while none answers."""
        with contextlib.suppress(MQError):
            name = SETTINGS["THERMOCLINE_BROKER_NAME"]
            return self.admin.replica_sets(self._controllers, [name]).get(name, ReplicasInfo())
        return ReplicasInfo()

    def master(self) -> int:
        """The number of the master, 0 while there is none."""
        return self.state().master_broker_id or 0

    def in_sync(self) -> set[int]:
        """The numbers of the brokers that have all that is acknowledged, and are alive."""
        return {replica.broker_id for replica in self.state().in_sync_replicas if replica.alive}

    def stop(self) -> int:
        """Stop all; the worst exit status of the brokers."""
        self.admin.close()
        status = max(broker.stop() for broker in self._brokers.values())
        for daemon in self._others:
            daemon.stop()
        return status

    def kill_all(self) -> None:
        """Kill all."""
        for daemon in (*self._brokers.values(), *self._others):
            daemon.kill()
