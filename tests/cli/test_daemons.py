"""The daemons as processes: the line that says they serve, what they refuse, how they stop; and the commands that
only a Thermocline broker serves.

Covers `broker/process/freed_memory.py`, `broker/process/log_format.py`.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.waiting import wait_until
from thermocline.cli.main import run
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer

COMMAND = [sys.executable, "-m", "thermocline.cli"]
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
SLAVE = ("--namesrv", "127.0.0.1:9", "--set", "brokerRole=SLAVE", "--set", "brokerId=1")


class Daemon:
    """One process of the command and what it printed."""

    def __init__(self, arguments: Sequence[str], directory: Path, *, open_files: tuple[int, int] | None = None) -> None:
        """`open_files`: its soft and hard limit, if not those of this process."""
        self._log = (directory / f"{arguments[0]}.err").open("w+b")
        command = [*COMMAND, *arguments]
        if open_files is not None:
            soft, hard = open_files
            command = ["sh", "-c", f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, cwd=directory)

    def ready(self) -> dict[str, str]:
        """Wait for the line that says that it serves, and return its fields."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), self.errors()
        return dict(part.split("=", 1) for part in line.split()[1:])

    def errors(self) -> str:
        """Return its stderr so far."""
        self._log.seek(0)
        return self._log.read().decode()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop and return its exit status; kills it when it does not."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._log.close()


@pytest.fixture(scope="module")
def dev(module_folder: Path) -> Iterator[dict[str, str]]:
    """A running `thermocline dev`, which stops cleanly in the end."""
    daemon = Daemon(["dev", "--data", "data", "--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0"], module_folder)
    try:
        yield daemon.ready()
    finally:
        assert daemon.stop() == 0


def children_of(process_id: int) -> list[int]:
    """The processes that a process has started and that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[1]) == process_id:
                found.append(int(path.parent.name))
    return found


def waiting(capsys: pytest.CaptureFixture[str], dev: dict[str, str], topic: str) -> int | None:
    """How many messages of a topic wait for the cold tier, None while the tier process has not said."""
    (state,) = ask(capsys, dev, "tier", "status", topic)["broker-a"]["topics"]
    counts = [queue["waitingMessages"] for queue in state["queues"]]
    return None if None in counts else sum(counts)


def ask(capsys: pytest.CaptureFixture[str], dev: dict[str, str], *arguments: str) -> Any:
    status = run([*arguments, "--namesrv", dev["namesrv"], "--json"])
    out, err = capsys.readouterr()
    assert status == 0, err
    return json.loads(out)


def test_dev_serves_the_addresses_that_it_prints(dev: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert set(dev) == {"namesrv", "broker", "cold"}
    assert re.fullmatch(r"file:///.*/data/cold", dev["cold"])
    (row,) = ask(capsys, dev, "cluster", "list")
    assert row["address"] == dev["broker"]


def test_a_change_that_would_promise_more_than_is_built_is_refused(
    dev: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for daemon, change in (("broker", "minInSyncReplicas=2"), ("namesrv", "clusterTest=true")):
        named = ["broker-a"] if daemon == "broker" else []
        status = run([daemon, "config", "set", *named, change, "--namesrv", dev["namesrv"]])
        assert status == 1
        assert re.search(f"{change.partition('=')[0]}\\S* is refused: it would promise", capsys.readouterr().err)


def test_a_name_server_is_added_while_the_broker_runs(
    dev: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    added = Daemon(["namesrv", "--listen", "127.0.0.1:0"], tmp_path)
    try:
        second = added.ready()["namesrv"]
        both = f"{dev['namesrv']};{second}"
        assert ask(capsys, dev, "broker", "config", "set", "broker-a", f"namesrvAddr={both}") == {"namesrvAddr": both}
        there = {"namesrv": second}
        wait_until(
            lambda: bool(ask(capsys, there, "cluster", "list")),
            what="the added NameServer serves the route",
            interval_s=0.05,
        )
        (row,) = ask(capsys, there, "cluster", "list")
        assert row["address"] == dev["broker"]
        ask(capsys, dev, "broker", "config", "set", "broker-a", f"namesrvAddr={dev['namesrv']}")
        assert ask(capsys, there, "cluster", "list") == [row]  # clients that still ask it do not notice
    finally:
        added.stop()
    assert [one["address"] for one in ask(capsys, dev, "cluster", "list")] == [dev["broker"]]


def test_messages_go_to_the_cold_tier_and_come_back(dev: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, dev, "topic", "create", "orders", "--queues", "2")
    with Producer(namesrv=dev["namesrv"]) as producer:
        producer.send_many(Message("orders", b"%d" % i, keys=f"k{i}") for i in range(20))
    wait_until(
        lambda: waiting(capsys, dev, "orders") == 20,
        what="the tier process has the end offsets of the messages",
        interval_s=0.05,
    )
    (segment,) = ask(capsys, dev, "tier", "seal", "orders")
    assert (segment["topic"], segment["messages"]) == ("orders", 20)
    explained = ask(capsys, dev, "tier", "explain", "orders", "--queue", "1")
    assert [row["queue"] for row in explained] == [1]
    assert all(explained[0][name] for name in ("local", "cold", "waiting", "ttl", "next"))
    assert len(ask(capsys, dev, "message", "pull", "orders")) == 20
    query = ("message", "query", "orders", "--key", "k7")
    wait_until(lambda: len(ask(capsys, dev, *query)) == 1, what="the index follows", interval_s=0.05)


def test_the_remains_of_a_deleted_topic_are_purged(dev: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("keep", "purge"):
        ask(capsys, dev, "topic", "create", name, "--queues", "1")
        with Producer(namesrv=dev["namesrv"]) as producer:
            producer.send_many(Message(name, b"%d" % i) for i in range(10))
        wait_until(
            lambda name=name: waiting(capsys, dev, name) == 10,
            what="the tier process has the end offsets of the messages",
            interval_s=0.05,
        )
    sealed = {row["topic"]: row["segment"] for row in ask(capsys, dev, "tier", "seal")}
    assert sealed["keep"] == sealed["purge"], "both in one pack"
    folder = Path(dev["cold"].removeprefix("file://"))
    (pack,) = folder.rglob(f"{sealed['purge']}.pack")
    ask(capsys, dev, "topic", "delete", "purge", "--yes")
    (row,) = ask(capsys, dev, "tier", "purge", "purge", "--now", "--yes")
    assert (row["packs_rewritten"], row["segments_rewritten"]) == (1, 0)
    assert (row["left_packs"], row["left_segments"]) == (0, 0)
    assert row["deleted_objects"] >= 1
    assert not pack.exists()
    assert len(ask(capsys, dev, "message", "pull", "keep")) == 10
    assert run(["tier", "purge", "keep", "--yes", "--namesrv", dev["namesrv"]]) == 2, "--now must be given"


def test_time_to_live(dev: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, dev, "topic", "create", "short", "--queues", "1")
    with Producer(namesrv=dev["namesrv"]) as producer:
        producer.send_many(Message("short", b"%d" % i) for i in range(10))
    wait_until(
        lambda: waiting(capsys, dev, "short") == 10,
        what="the tier process has the end offsets of the messages",
        interval_s=0.05,
    )
    (row,) = ask(capsys, dev, "ttl", "set", "short", "1h", "--dry-run")
    assert (row["messages"], row["ttl"]) == (0, "1h")
    assert (row["segments"], row["stored_bytes"], row["requests"]) == (0, 0, {"put": 0, "delete": 0})
    assert (row["freed_per_month"], row["requests_cost"], row["currency"]) == (0, 0, "USD")
    preview = ("ttl", "set", "short", "1ms", "--dry-run")
    wait_until(lambda: ask(capsys, dev, *preview)[0]["messages"] == 10, what="a millisecond passes", interval_s=0.05)
    (row,) = ask(capsys, dev, "ttl", "show", "short")
    assert row["ttl"] == "for ever", "a dry run changes nothing"
    assert ask(capsys, dev, "ttl", "set", "short", "1h")[0]["ttl_ms"] == 3_600_000
    assert ask(capsys, dev, "ttl", "show", "short")[0]["ttl"] == "1h"
    assert ask(capsys, dev, "ttl", "clear", "short")[0]["ttl_ms"] is None
    ask(capsys, dev, "ttl", "set", "short", "1ms")
    (queue,) = ask(capsys, dev, "topic", "status", "short")
    assert (queue["min_offset"], queue["max_offset"]) == (10, 10), "in effect at once"
    (proof,) = ask(capsys, dev, "ttl", "prove", "short")["brokers"]
    assert (proof["is_proven"], len(proof["samples"]), proof["files"][0]["messages"]) == (True, 2, 10)
    assert run(["ttl", "set", "short", "1h", "--prices", __file__, "--namesrv", dev["namesrv"]]) == 2
    capsys.readouterr()


def test_a_dry_run_prices_freed_bytes_by_a_given_price_table(
    dev: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two segments of six objects: their bytes by the month, a commit and a delete once."""
    prices = tmp_path / "prices.toml"
    prices.write_text(
        """
        name = "test"
        currency = "EUR"
        [per_1000_requests]
        put = 7000.0
        get = 1000000.0
        list = 1000000.0
        delete = 300.0
        [per_gib]
        sent = 1000000.0
        received = 1000000.0
        [per_gib_month]
        stored = 1048576.0
        """
    )
    ask(capsys, dev, "topic", "create", "priced", "--queues", "1")
    raw_bytes = 0
    for _ in range(2):
        with Producer(namesrv=dev["namesrv"]) as producer:
            producer.send_many(Message("priced", Random(i).randbytes(2_000)) for i in range(10))
        wait_until(
            lambda: waiting(capsys, dev, "priced") == 10,
            what="the tier process has the end offsets of the messages",
            interval_s=0.05,
        )
        (segment,) = ask(capsys, dev, "tier", "seal", "priced")
        raw_bytes += segment["raw_bytes"]
    parts = [path for path in Path(dev["cold"].removeprefix("file://")).rglob("topics/priced/*") if path.is_file()]
    assert sorted(path.suffix for path in parts) == [".cq", ".cq", ".idx", ".idx", ".log", ".log"]
    stored_bytes = sum(path.stat().st_size for path in parts)
    assert stored_bytes > 2 * 10 * 2_000, "bodies do not compress"
    preview = ("ttl", "set", "priced", "1ms", "--dry-run", "--prices", str(prices))
    wait_until(lambda: ask(capsys, dev, *preview)[0]["messages"] == 20, what="a millisecond passes", interval_s=0.05)
    (row,) = ask(capsys, dev, *preview)
    assert (row["segments"], row["packs"], row["stored_bytes"], row["raw_bytes"]) == (2, 0, stored_bytes, raw_bytes)
    assert row["requests"] == {"put": 1, "delete": 1}
    # 7000 and 300 for a thousand: 7 for the commit, 0.3 for one call that deletes six objects.
    assert row["requests_cost"] == 7.3
    # 1048576 for a GiB, which is 1024 for a MiB, which is 1 for each KiB.
    assert row["freed_per_month"] == round(stored_bytes / 1024, 6) > 39
    assert row["currency"] == "EUR"
    (row,) = ask(capsys, dev, "ttl", "set", "priced", "1ms", "--dry-run")
    assert (row["requests_cost"], row["currency"]) == (0.000005, "USD"), "the example: 0.005 for a thousand puts"
    assert row["freed_per_month"] == round(0.023 * stored_bytes / 1024**3, 6)


def test_a_topics_own_time_is_one_however_it_was_set(dev: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, dev, "topic", "create", "reserved", "--attribute", "reserve.time=2")
    assert ask(capsys, dev, "ttl", "show", "reserved")[0]["ttl"] == "2h"
    ask(capsys, dev, "ttl", "set", "reserved", "90m")
    ask(capsys, dev, "topic", "update", "reserved", "--attribute", "reserve.time=3")
    assert ask(capsys, dev, "ttl", "show", "reserved")[0]["ttl"] == "3h"
    assert ask(capsys, dev, "ttl", "clear", "reserved", "--dry-run")[0]["ttl"] == "for ever"
    assert ask(capsys, dev, "ttl", "clear", "reserved")[0]["ttl"] == "for ever"


def test_name_server_and_broker_run_apart_and_stop_on_interrupt(tmp_path: Path) -> None:
    name_server = Daemon(["namesrv", "--listen", "127.0.0.1:0"], tmp_path)
    try:
        address = name_server.ready()["namesrv"]
        broker = Daemon(
            ["broker", "--data", "store", "--listen", "127.0.0.1:0", "--namesrv", address, "--name", "broker-z"],
            tmp_path,
        )
        try:
            assert broker.ready()["cold"] == "none"
            with Producer(namesrv=address) as producer:
                assert producer.send(Message("orders", b"x")).queue.broker_name == "broker-z"
        finally:
            assert broker.stop(signal.SIGINT) == 0, broker.errors()
    finally:
        assert name_server.stop(signal.SIGINT) == 0


def listening_hosts(process_id: int) -> set[str]:
    """The addresses at which a process listens, as Linux lists its sockets."""
    inodes = set()
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(str(descriptor.readlink()))
    hosts = set()
    for line in Path(f"/proc/{process_id}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and f"socket:[{rest[5]}]" in inodes:
            hosts.add(".".join(str(byte) for byte in reversed(bytes.fromhex(local.partition(":")[0]))))
    return hosts


@pytest.mark.parametrize("daemon", ["namesrv", "broker", "dev"])
def test_daemons_without_settings_serve_this_machine_alone(tmp_path: Path, daemon: str) -> None:
    """Clients, health and metrics; without a word, because no one else reaches them."""
    free = {"namesrv": ("--set", "listenPort=0"), "broker": ("--set", "listenPort=0", "--set", "healthPort=0")}
    arguments = {
        "namesrv": ("namesrv", *free["namesrv"]),
        "broker": ("broker", "--data", "store", "--cold", "none", *free["broker"]),
        "dev": (
            "dev",
            "--namesrv",
            "127.0.0.1:0",
            "--listen",
            "127.0.0.1:0",
            "--cold",
            "none",
            "--set",
            "healthPort=0",
        ),
    }[daemon]
    process = Daemon(arguments, tmp_path)
    try:
        addresses = process.ready()
        assert {addresses[name].rpartition(":")[0] for name in ("namesrv", "broker") if name in addresses} == {
            "127.0.0.1"
        }
        assert listening_hosts(process.process.pid) == {"127.0.0.1"}
        assert "authentication is off" not in process.errors()
    finally:
        process.stop()


def test_one_warning_when_others_reach_a_daemon(tmp_path: Path) -> None:
    arguments = ("broker", "--data", "store", "--cold", "none", "--listen", "0.0.0.0:0", "--set", "healthPort=0")
    broker = Daemon((*arguments, "--advertise", "127.0.0.1", "--set", "healthBindAddress=0.0.0.0"), tmp_path)
    name_server = Daemon(("namesrv", "--listen", "0.0.0.0:0"), tmp_path)
    try:
        broker.ready()
        name_server.ready()
        assert listening_hosts(broker.process.pid) == listening_hosts(name_server.process.pid) == {"0.0.0.0"}
        for daemon in (broker, name_server):
            assert daemon.errors().count("authentication is off") == 1
            assert "every client that reaches 0.0.0.0:" in daemon.errors()
    finally:
        broker.stop()
        name_server.stop()


def test_a_broker_that_others_cannot_reach_says_so(tmp_path: Path) -> None:
    """It listens on loopback, and a NameServer elsewhere would send clients to their own machines."""
    arguments = ("broker", "--data", "store", "--cold", "none", "--set", "listenPort=0", "--namesrv", "192.0.2.1:9876")
    broker = Daemon((*arguments, "--set", "registerBrokerTimeoutMills=100"), tmp_path)
    try:
        broker.ready()
        assert "NameServers on other machines are given 127.0.0.1, which clients there cannot reach" in broker.errors()
    finally:
        broker.stop()


@pytest.mark.parametrize("daemon", ["namesrv", "broker"])
def test_the_limit_of_open_files_is_raised_by_itself(tmp_path: Path, daemon: str) -> None:
    """In the daemon and its helper processes, and without a warning as long as little is open."""
    options = {"namesrv": [], "broker": ["--data", "store", "--cold", f"file://{tmp_path}/cold"]}[daemon]
    limited = Daemon([daemon, "--listen", "127.0.0.1:0", *options], tmp_path, open_files=(256, 4_000))
    try:
        limited.ready()
        process_id, helper_count = limited.process.pid, {"namesrv": 0, "broker": 2}[daemon]
        wait_until(lambda: len(children_of(process_id)) == helper_count, what="the helpers run", interval_s=0.05)
        for each in (process_id, *children_of(process_id)):
            limits = Path(f"/proc/{each}/limits").read_text()
            assert re.search(r"^Max open files +4000 +4000 ", limits, re.MULTILINE), limits
        assert "open files" not in limited.errors()
    finally:
        assert limited.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["broker", "--set", "listenPort=many"], 2, "listenPort"),
        (["broker", "--set", "lisenPort=1"], 2, "listenPort"),
        (["broker", "--set", "listenPort=99999"], 2, "listenPort"),
        (["broker", "--config", "missing.conf"], 2, "missing.conf"),
        (["broker", "--set", "inSyncReplicas=2"], 2, "brokerRole=SYNC_MASTER alone"),
        (["broker", *SLAVE, "--recover-from", "file:///nowhere"], 2, "a slave gets its log from its master"),
        (["dev", "--set", "brokerRole=SLAVE"], 2, "a slave needs a brokerId above 0"),
        (["dev", "--set", "minInSyncReplicas=2"], 2, "minInSyncReplicas is refused: it would promise"),
        (["namesrv", "--set", "clusterTest=true"], 2, "clusterTest=true is refused"),
        (["namesrv", "--set", "enableControllerInNamesrv=true"], 2, "controllerDLegerPeers needs one, three or five"),
        (["controller"], 2, "controllerDLegerPeers needs one, three or five"),
        (["controller", "--peers", "n0-127.0.0.1:9878", "--id", "n0"], 2, "controllerStorePath is needed"),
        (["namesrv", "--set", "listenPort=many"], 2, "listenPort"),
        (["namesrv", "--set", "listenPort=99999"], 2, "listenPort must be at most 65535"),
        (["broker", "--listen", "nonsense"], 2, "HOST:PORT"),
        (["namesrv", "--listen", "nonsense"], 2, "HOST:PORT"),
    ],
)
def test_invalid_settings_are_refused_at_start(
    tmp_path: Path, arguments: list[str], status: int, expected: str
) -> None:
    result = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == status
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_dev_refuses_a_controller_that_it_would_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THERMOCLINE_NAME_SERVER_ENABLE_CONTROLLER_IN_NAMESRV", "true")
    assert run(["dev", "--data", str(tmp_path)]) == 2
    assert "thermocline dev runs no controller" in capsys.readouterr().err
