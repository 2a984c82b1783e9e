"""Brokers of a replica set as processes, ours and the official ones; their logs compared; a load with its answers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.killable_broker import KillableBroker
from tests.process_groups import processes_of
from tests.waiting import wait_until
from thermocline.client import AdminClient, Message, MQError, Producer, SendResult, SendStatus
from thermocline.remoting.records.message_record import BLANK, MAGIC_BLANK, iterate_records
from tooling.official_rocketmq import free_broker_port

FILE_BYTES = 1 << 20
FILE_SIZES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}
FAST: Mapping[str, str] = {"haSendHeartbeatInterval": "500", "haHousekeepingInterval": "5000"}
TOPIC = "Replicated"
BODY_BYTES = 600


def wait_routed(namesrv: str, topic: str) -> None:
    """Return when the topic's route has a master: one that is busy may be behind its slaves."""

    def has_master() -> bool:
        with contextlib.suppress(MQError):
            return bool(admin.topic_route(topic).publish_queues)
        return False

    with AdminClient(namesrv=namesrv) as admin:
        wait_until(has_master, what="the route has a master")


class ReplicaBroker(KillableBroker):
    """A broker of ours of one replica set, without a cold tier unless `has_cold_tier`."""

    def __init__(
        self,
        directory: Path,
        namesrv: str,
        role: str,
        broker_id: int = 0,
        *,
        has_cold_tier: bool = False,
        **settings: str,
    ) -> None:
        super().__init__(
            directory,
            namesrv,
            settings={
                **FILE_SIZES,
                **FAST,
                "brokerRole": role,
                "brokerId": str(broker_id),
                "haListenPort": str(free_broker_port()),  # the same after a restart
                **settings,
            },
        )
        self._has_cold_tier = has_cold_tier

    def become(self, role: str, broker_id: int) -> None:
        """Have another role from the next start on."""
        self._settings |= {"brokerRole": role, "brokerId": str(broker_id)}

    def _words(self) -> tuple[str, ...]:
        words = super()._words()
        if self._has_cold_tier:
            return words
        cold = words.index("--cold")
        return (*words[:cold], *words[cold + 2 :])

    @property
    def packs(self) -> list[Path]:
        """The objects with messages in its bucket."""
        return [path for path in (self._directory / "cold").rglob("*") if path.suffix in (".pack", ".log")]

    @property
    def ha_port(self) -> int:
        """Where slaves connect."""
        return int(self._settings["haListenPort"])

    @property
    def log_folder(self) -> Path:
        return self._directory / "store" / "commitlog"

    def freeze(self) -> None:
        """Stop all its processes where they are."""
        for process in processes_of(self.process_id):
            os.kill(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in processes_of(self.process_id):
            os.kill(process, signal.SIGCONT)


@dataclass(slots=True)
class Load:
    """A producer that sends until it is stopped; its messages and their answers."""

    namesrv: str
    answers: list[tuple[bytes, SendResult]] = field(default_factory=list)
    failed_count: int = 0
    last_failure: MQError | None = None
    pause_s: float = 0.0
    """Between two sends."""
    _is_stopping: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Send in a thread."""
        thread = threading.Thread(target=self._run, name="load")
        thread.start()
        try:
            yield
        finally:
            self._is_stopping.set()
            thread.join()
            self._is_stopping.clear()

    def wait_for(self, count: int) -> None:
        """Return when so many more sends have been answered."""
        wanted = len(self.answers) + count
        try:
            wait_until(lambda: len(self.answers) >= wanted, what=f"{count} sends are answered", interval_s=0.02)
        except AssertionError as error:
            answered = f"{count - wanted + len(self.answers)} of them are; {self.failed_count} sends failed"
            raise AssertionError(f"{error}; {answered}, the last with: {self.last_failure!r}") from error

    @property
    def acknowledged(self) -> set[bytes]:
        """Bodies of sends that were answered SEND_OK."""
        return {body for body, result in self.answers if result.status is SendStatus.SEND_OK}

    def _run(self) -> None:
        with Producer(
            group="load", namesrv=self.namesrv, send_timeout_ms=10_000, retry_times_when_send_failed=0
        ) as producer:
            while not self._is_stopping.wait(self.pause_s):
                self._send(producer)

    def _send(self, producer: Producer) -> None:
        body = b"%d " % (len(self.answers) + self.failed_count)
        body += os.urandom(BODY_BYTES // 2).hex().encode()
        try:
            self.answers.append((body, producer.send(Message(TOPIC, body))))
        except MQError as error:
            self.failed_count += 1
            self.last_failure = error
            self._is_stopping.wait(0.05)


def log_files(folder: Path) -> list[Path]:
    """The files of a log that hold something, oldest first: either broker makes the next ones ahead of need."""
    files = sorted(path for path in folder.iterdir() if path.name.isdigit())
    return [path for path in files if _first_bytes(path) != bytes(BLANK.size)]


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(BLANK.size)


def log_end(folder: Path) -> int:
    """Where a log ends; 0 without a record."""
    files = log_files(folder)
    return int(files[-1].name) + end_in_file(files[-1].read_bytes()) if files else 0


def end_in_file(data: bytes, *, with_blank: bool = True) -> int:
    """Where the last record of a file ends, or the blank behind it."""
    position = 0
    while position + BLANK.size <= len(data):
        size_bytes, magic = BLANK.unpack_from(data, position)
        if size_bytes <= 0 or (magic == MAGIC_BLANK and not with_blank):
            break
        position += size_bytes
    return position


def log_bodies(folder: Path) -> set[bytes]:
    """The bodies of the load's messages in a log."""
    found = set()
    for path in log_files(folder):
        data = path.read_bytes()
        records = iterate_records(data, 0, end_in_file(data, with_blank=False))
        found.update(record.body for record in records if record.topic == TOPIC)
    return found


def wait_copied(master: Path, slave: Path) -> None:
    """Return when the slave's log is as long as the master's; fail unless each file that it has is the master's."""
    wait_until(
        lambda: log_end(slave) > 0 and log_end(slave) == log_end(master),
        what="the slave has the master's log",
    )
    for path in log_files(slave):
        assert path.read_bytes() == (master / path.name).read_bytes(), path.name
