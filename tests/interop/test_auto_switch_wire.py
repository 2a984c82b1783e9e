"""Both ends of a connection under a controller, each at an unmodified official broker: bytes, epochs, and where a log
parts from the master's."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controller.controller_group import controller_group
from tests.interop.wire_master import WireMaster
from tests.replication.replica_pair import bytes_of
from tests.store.store_parts import draft
from tests.waiting import wait_until
from thermocline.client import Message, Producer
from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication import AutoSwitchSlaveSession, EpochFile, LogCopy, ReplicationSettings, SlaveHandshake
from thermocline.replication.epoch_file import decode_epochs
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.index.index_service import IndexService
from thermocline.store.message_store import MessageStore
from thermocline.store.truncation import truncate_store
from tooling.official_rocketmq import OfficialSoftware, free_broker_port, official_broker, official_namesrv

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-controller")]

TOPIC, FILE_BYTES, SLAVE_ID, TIMEOUT_S = "Followed", 1 << 20, 2, 120.0
BODY_BYTES = 2_000


def steady_ms() -> int:
    return int(monotonic_ms())


class WireSlave:
    """A store that is copied over a socket, without a broker."""

    def __init__(self, directory: Path, master_port: int) -> None:
        self.disk = RealDisk()
        self.master_port = master_port
        self.config = StoreConfig(root_path=str(directory), log_file_bytes=FILE_BYTES)
        self.store = MessageStore.open(self.config, disk=self.disk, clock=wall_clock_ms)
        self.epoch_file = EpochFile(self.disk, str(directory))
        self.copy = LogCopy(self.store)

    @property
    def message_count(self) -> int:
        return sum(queue.next_offset for queue in self.store.queues if queue.topic == TOPIC)

    def follow_until(self, is_there: Callable[[], bool]) -> None:
        """Connect as often as needed, cut if needed, and copy until it is so."""

        def is_done() -> bool:
            with contextlib.suppress(ConnectionError):
                self._follow(is_there)
            return is_there()

        wait_until(is_done, what="the copy has caught up", timeout_s=TIMEOUT_S)

    def _follow(self, is_there: Callable[[], bool]) -> None:
        log = self.store.commit_log
        session = AutoSwitchSlaveSession(
            self.epoch_file,
            ReplicationSettings(),
            SlaveHandshake(SLAVE_ID, begins_with_last_file=False, is_learner=True),
            min_offset=log.min_offset,
            end_offset=log.append_offset,
            now_ms=steady_ms(),
        )
        self.copy.restart()
        with socket.create_connection(("127.0.0.1", self.master_port), timeout=10) as connection:
            connection.sendall(session.greeting)
            while not is_there():
                data = connection.recv(1 << 16)
                if not data:
                    return
                for offset, part in session.receive(data, now_ms=steady_ms()):
                    self.copy.receive(offset, part)
                if session.must_cut:
                    self._cut(session)
                    return
                frame = session.report(log.append_offset, now_ms=steady_ms())
                if frame is not None:
                    connection.sendall(frame)

    def _cut(self, session: AutoSwitchSlaveSession) -> None:
        assert session.alignment is not None
        truncate_store(self.store, self.disk, session.alignment.end_offset, cut_derived=self._cut_index)
        self.epoch_file.cut(session.alignment)

    def _cut_index(self, end_offset: PhysicalOffset) -> None:
        IndexService.open(
            self.disk, self.config, log_end_offset=end_offset, was_clean=True, clock=wall_clock_ms
        ).close()


@contextlib.contextmanager
def official_replica(
    software: OfficialSoftware, directory: Path, *, namesrv: str, controller: str, port: int
) -> Iterator[None]:
    """The official broker; its store outlives it."""
    properties = {
        "mappedFileSizeCommitLog": str(FILE_BYTES),
        "enableControllerMode": "true",
        "controllerAddr": controller,
        "controllerHeartBeatTimeoutMills": "3000",
        "syncBrokerMetadataPeriod": "1000",
        "haListenPort": str(port),
        "haSendHeartbeatInterval": "1000",
        "storePathEpochFile": str(directory / "store" / "epochFileCheckpoint"),
        "storePathBrokerIdentity": str(directory / "store" / "brokerIdentity"),
    }
    with official_broker(
        software, directory, namesrv_address=namesrv, store_directory=directory / "store", properties=properties
    ):
        yield


def send(namesrv: str, count: int) -> None:
    """Send so many messages, each until a master takes it."""
    for number in range(count):

        def is_sent(body: bytes = b"%d " % number + bytes(BODY_BYTES)) -> bool:
            with contextlib.suppress(MQError), Producer(group="wire", namesrv=namesrv) as producer:
                producer.send(Message(TOPIC, body))
                return True
            return False

        wait_until(is_sent, what="a message is sent", timeout_s=TIMEOUT_S)


def make_topic(namesrv: str) -> None:
    def is_made() -> bool:
        with contextlib.suppress(MQError), AdminClient(namesrv=namesrv) as admin:
            admin.create_topic(TOPIC, queue_nums=2)
            return True
        return False

    wait_until(is_made, what="the topic is made", timeout_s=TIMEOUT_S)


def test_a_log_that_parts_from_an_official_masters_is_cut_and_becomes_the_same(
    official_software: OfficialSoftware, tmp_path: Path
) -> None:
    port, directory = free_broker_port(), tmp_path / "master"
    settings = {"newLeaderElectionWaitMs": "3000", "scanNotActiveBrokerInterval": "500"}
    with (
        official_namesrv(official_software, tmp_path / "namesrv") as name_server,
        controller_group(tmp_path / "controller", size=1, settings=settings) as controllers,
    ):
        namesrv = name_server.address

        def run_master() -> contextlib.AbstractContextManager[None]:
            return official_replica(
                official_software, directory, namesrv=namesrv, controller=controllers.text, port=port
            )

        slave = WireSlave(tmp_path / "slave", port)
        with run_master():
            make_topic(namesrv)
            send(namesrv, 20)
            slave.follow_until(lambda: slave.message_count == 20)
            assert [entry.epoch for entry in slave.epoch_file.epochs] == [1]
        # A tail that the next master does not have, as of a master that was replaced.
        slave.copy.end()
        for number in range(600):  # into the next file
            slave.store.put(draft(TOPIC, number % 2, bytes(BODY_BYTES)))
        tail_end = slave.store.commit_log.append_offset
        assert len(slave.store.commit_log.files) == 2
        slave.copy = LogCopy(slave.store)
        with run_master():
            send(namesrv, 20)
            slave.follow_until(lambda: slave.message_count == 40)
        end = slave.store.commit_log.append_offset
        assert end < tail_end
        original = (directory / "store" / "commitlog" / f"{0:020}").read_bytes()
        assert bytes_of(slave.store, 0, end) == original[:end]
        assert not any(original[end : end + 4])
        assert list(slave.epoch_file.epochs) == list(
            decode_epochs((directory / "store" / "epochFileCheckpoint").read_bytes())
        )
        slave.store.close()


def test_an_official_slave_copies_our_masters_log_and_gives_up_what_it_lacks(
    official_software: OfficialSoftware, tmp_path: Path
) -> None:
    settings = {"newLeaderElectionWaitMs": "3000", "scanNotActiveBrokerInterval": "500"}
    directory = tmp_path / "slave"
    with (
        official_namesrv(official_software, tmp_path / "namesrv") as name_server,
        controller_group(tmp_path / "controller", size=1, settings=settings) as controllers,
    ):
        ours = WireMaster(
            tmp_path / "master", file_bytes=FILE_BYTES, controller=controllers.text, namesrv=name_server.address
        )
        with contextlib.closing(ours):
            ours.epoch_file.begin_as_master(1, LOG_START)
            results = [ours.store.put(draft(TOPIC, number % 2, bytes(BODY_BYTES))) for number in range(700)]
            with official_replica(
                official_software,
                directory,
                namesrv=name_server.address,
                controller=controllers.text,
                port=free_broker_port(),
            ):
                wait_until(lambda: has_log(directory, ours), what="the official slave has the log", timeout_s=TIMEOUT_S)
                assert ours.slaves == [SlaveHandshake(2, begins_with_last_file=False, is_learner=False)]
                # As if this one were another broker, which was elected without the last messages.
                with ours.lock:
                    ours.drop_slave()
                    truncate_store(
                        ours.store, ours.disk, results[400].physical_offset, cut_derived=lambda end_offset: None
                    )
                    ours.epoch_file.begin_as_master(2, ours.store.commit_log.append_offset)
                    for number in range(50):
                        ours.store.put(draft(TOPIC, number % 2, b"another" + bytes(BODY_BYTES)))
                wait_until(lambda: has_log(directory, ours), what="its log is the same again", timeout_s=TIMEOUT_S)
                theirs = decode_epochs((directory / "store" / "epochFileCheckpoint").read_bytes())
                assert list(theirs) == list(ours.epoch_file.epochs) == [(1, 0), (2, results[400].physical_offset)]


def has_log(directory: Path, ours: WireMaster) -> bool:
    """Whether an official broker has our log; what it has given up it leaves behind its end."""
    end = ours.store.commit_log.append_offset
    folder = directory / "store" / "commitlog"
    names = sorted(path.name for path in folder.glob("0*")) if folder.exists() else []
    theirs = b"".join((folder / name).read_bytes() for name in names)
    return theirs[:end] == bytes_of(ours.store, 0, end)
