"""docs/migrate-from-rocketmq.md: its commands are run as printed, there and back, while clients are at work."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.docs.command_lines import Daemon
from tests.docs.pages import DOCS, code_blocks
from tests.interop.cluster import BROKER_NAME
from tests.interop.java_agent import JavaAgent
from tests.interop.replica_brokers import FAST, FILE_SIZES, TOPIC, Load, log_end
from tests.interop.test_our_slave_reads import TOPIC_FIELDS, consumed_count
from tests.interop.test_slave_metadata import ask
from tests.waiting import wait_until
from thermocline import Message, Producer
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import (
    OfficialSoftware,
    RunningDaemon,
    free_broker_port,
    official_broker,
    official_namesrv,
)

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.timeout(600)]

PAGE = DOCS / "migrate-from-rocketmq.md"
GROUP = "MigratedGroup"
HISTORY = 5_000
TIMEOUT_S = 120.0
SLOW_S = 90.0
"""Clients fetch a route every 30 s."""
DELAY_MS = 60_000


class Migration:
    """The page's blocks, with the addresses of this run in the place of those that are printed."""

    def __init__(self, folder: Path, agent: JavaAgent, *, namesrv: str, old: str) -> None:
        self.folder, self._agent, self.namesrv = folder, agent, namesrv
        self.port = free_broker_port()
        self.address = f"127.0.0.1:{self.port}"
        self._printed = {
            "127.0.0.1:9876": namesrv,
            "127.0.0.1:10911": old,
            "listenPort = 10921": f"listenPort = {self.port}",
        }

    def block(self, heading: str, language: str, number: int = 0) -> str:
        """One of a section's blocks."""
        blocks = [block for block in code_blocks(PAGE, language) if block.headings[-1].startswith(heading)]
        text = blocks[number].text
        for printed, real in self._printed.items():
            text = text.replace(printed, real)
        return text

    def run(self, text: str) -> None:
        """Run a block in a shell; each `thermocline broker` but `config` is left out: `start` runs it."""
        lines = [line for line in text.splitlines() if not line.startswith("thermocline broker --config")]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "NAMESRV_ADDR": self.namesrv}
        subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=self.folder, env=environment, check=True, timeout=60)

    def start(self, text: str) -> Daemon:
        """Run the block's `thermocline broker`."""
        (line,) = [line for line in text.splitlines() if line.startswith("thermocline broker --config")]
        daemon = Daemon(line.split()[1:], self.folder)
        assert daemon.ready()["broker"] == self.address
        return daemon

    def mqadmin(self, text: str) -> str:
        """Run the block's mqadmin command; what it prints."""
        (words,) = [line.split()[1:] for line in text.splitlines() if line.startswith("mqadmin ")]
        return str(self._agent.call("admin", arguments=words))

    def wait_copied(self, master: str, of_slave: Path, of_master: Path) -> None:
        """Return when the master shows that its slave has all, and both logs end alike."""
        status = self.block("2.", "sh", 1).replace(self._printed["127.0.0.1:10911"], master)

        def is_copied() -> bool:
            found = re.search(r"^\S+:\d+\s+\S+\s+\d+\s+(-?\d+)", self.mqadmin(status), re.MULTILINE)
            return found is not None and int(found[1]) == 0 and log_end(of_slave) == log_end(of_master)

        wait_until(is_copied, what="the slave has the whole log", timeout_s=TIMEOUT_S, interval_s=0.2)


def wait_quiet(load: Load) -> None:
    """Return when producers have heard that the broker takes no writes."""
    failed = load.failed_count
    wait_until(lambda: load.failed_count > failed + 20, what="sends find no queue", timeout_s=SLOW_S)


def wait_going_on(load: Load) -> None:
    """Return when sends are stored again."""
    count = len(load.answers)
    wait_until(lambda: len(load.answers) > count + 50, what="sends are answered", timeout_s=SLOW_S)


@contextmanager
def official(
    software: OfficialSoftware, folder: Path, store: Path, namesrv: str, **properties: str
) -> Iterator[RunningDaemon]:
    with official_broker(
        software,
        folder,
        namesrv_address=namesrv,
        store_directory=store,
        properties={**FILE_SIZES, **FAST, "brokerName": BROKER_NAME, **properties},
        ends_cleanly=True,
    ) as broker:
        yield broker


def test_there_and_back(official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path) -> None:
    agent = java_agent_process
    logs = {name: tmp_path / f"{name}-store" / "commitlog" for name in ("old", "new", "back")}
    received: set[bytes] = set()

    def consumed() -> set[bytes]:
        received.update(message.body for message in agent.received(GROUP, count=0))
        return received

    with ExitStack() as stack:
        namesrv = stack.enter_context(official_namesrv(official_software, tmp_path / "namesrv")).address
        old_life = stack.enter_context(ExitStack())
        old = old_life.enter_context(
            official(official_software, tmp_path / "old", tmp_path / "old-store", namesrv, brokerRole="ASYNC_MASTER")
        )
        page = Migration(tmp_path, agent, namesrv=namesrv, old=old.address)
        fields = {**TOPIC_FIELDS, "topic": TOPIC}
        asyncio.run(ask(old.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
        history = {b"history %d " % number + bytes(600) for number in range(HISTORY)}
        with Producer(group="history", namesrv=namesrv) as producer:
            producer.send_many([Message(TOPIC, body) for body in sorted(history)], window=64)
        agent.call("start_push_consumer", name=GROUP, namesrv=namesrv, group=GROUP, topics={TOPIC: "*"})
        stack.callback(agent.call, "stop_consumer", name=GROUP)
        load = Load(namesrv, pause_s=0.02)
        stack.enter_context(load.running())
        load.wait_for(50)

        page.run(page.block("1.", "sh"))
        assert len(list(logs["new"].iterdir())) >= 3
        configuration = page.block("2.", "properties")
        sizes = "".join(f"{name} = {value}\n" for name, value in {**FILE_SIZES, **FAST}.items())
        (tmp_path / "broker-a.conf").write_text(configuration + sizes)
        slave = page.start(page.block("2.", "sh"))
        stack.callback(slave.stop)
        load.wait_for(50)

        with Producer(group="delayed", namesrv=namesrv) as producer:
            delayed_until_ms = wall_clock_ms() + DELAY_MS
            producer.send(Message(TOPIC, b"delayed", deliver_at_ms=delayed_until_ms))
        page.mqadmin(page.block("3.", "sh"))
        wait_quiet(load)
        page.wait_copied(old.address, logs["new"], logs["old"])

        def follows() -> bool:
            counts = consumed_count(page.address, GROUP, TOPIC), consumed_count(old.address, GROUP, TOPIC)
            return counts[0] == counts[1] > HISTORY

        wait_until(follows, what="the slave has the offsets")
        old_life.close()
        assert slave.stop() == 0
        page.run(page.block("3.", "sh", 1))
        ours = page.start(page.block("3.", "sh", 1))
        stack.callback(ours.stop)
        wait_going_on(load)
        wait_until(lambda: consumed() >= load.acknowledged | history, what="the consumer goes on", timeout_s=SLOW_S)
        assert log_end(logs["new"]) > log_end(logs["old"])
        wait_until(lambda: b"delayed" in consumed(), what="the delayed message comes", timeout_s=SLOW_S)
        assert wall_clock_ms() >= delayed_until_ms
        agent.call("start_push_consumer", name="new", namesrv=namesrv, group="NewGroup", topics={TOPIC: "*"})
        stack.callback(agent.call, "stop_consumer", name="new")
        assert {message.body for message in agent.received("new", count=HISTORY)} & history

        page.run(page.block("Back", "sh"))
        back_life = stack.enter_context(ExitStack())
        back = back_life.enter_context(
            official(
                official_software,
                tmp_path / "back",
                tmp_path / "back-store",
                namesrv,
                brokerRole="SLAVE",
                brokerId="1",
            )
        )
        page.run(page.block("Back", "sh", 1))
        wait_quiet(load)
        page.wait_copied(page.address, logs["back"], logs["new"])
        wait_until(
            lambda: consumed_count(back.address, GROUP, TOPIC) == consumed_count(page.address, GROUP, TOPIC),
            what="the slave has the offsets",
            timeout_s=SLOW_S,
        )
        assert ours.stop() == 0
        back_life.close()
        stack.enter_context(
            official(official_software, tmp_path / "last", tmp_path / "back-store", namesrv, brokerRole="ASYNC_MASTER")
        )
        wait_going_on(load)
        wait_until(lambda: consumed() >= load.acknowledged, what="the consumer goes on", timeout_s=SLOW_S)
