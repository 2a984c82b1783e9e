"""Explanations of all queues at once."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tests.broker.control_broker import HalfFullDisk
from tests.broker.data_broker import data_broker
from tests.broker.wire import Wire
from tests.store.store_parts import draft
from thermocline.broker.assembly.processors import tier_processors
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_protocol import HelloReply, TierReportReply
from thermocline.broker.processors.tier import tier
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.findings import ScrubReport

TOPICS = [f"topic-{number}" for number in range(3)]


class CountingDisk(HalfFullDisk):
    """How many questions for its room it got."""

    count = 0

    def free_bytes(self, path: str) -> int:
        self.count += 1
        return super().free_bytes(path)


async def test_the_system_is_asked_about_log_files_once_for_all_queues(tmp_path: Path) -> None:
    disk = CountingDisk()
    async with data_broker(tmp_path, topics=TOPICS, disk=disk, start=False) as broker:
        for topic in TOPICS:
            broker.store.put(draft(topic))
        broker.store.sync_derived()

        async def report_now() -> None:
            pass

        settings = HelloReply(
            store=broker.store.config,
            tier=TierConfig(),
            store_uuid="",
            cluster_name="c",
            broker_name="b",
            was_clean=True,
        )
        processors = tier_processors(
            broker.parts,
            HelperHub(generation=1, build_id=1, settings=settings),
            helpers=list,
            report_now=report_now,
            gate=RetentionGate,
        )
        wire, disk.count = Wire(Dispatcher(processors)), 0
        wire.receive(RemotingCommand(code=PrivateRequestCode.TIER_EXPLAIN, opaque=1).encode())
        (answer,) = await wire.wait_commands()
    assert answer.code == 0, answer.remark
    rows = json.loads(bytes(answer.body))["queues"]
    assert [row["whyLocal"] for row in rows if row["topic"] in TOPICS] == [
        "log file 0 is the newest, which always stays"
    ] * 3
    assert disk.count == 1


def test_the_row_of_the_last_scrub() -> None:
    reply = TierReportReply(version=7, last_error="", requests={}, sent_bytes=0, received_bytes=0, topics=[])
    assert tier._scrub_row(reply) is None
    scrub = ScrubReport(root="root", version=7, deep=True, started_ms=1, finished_ms=2)
    assert tier._scrub_row(msgspec.structs.replace(reply, last_scrub=scrub)) == {
        "finishedMs": 2,
        "deep": True,
        "isComplete": scrub.is_complete,
        "unreadCount": 0,
        "unreadBytes": 0,
        "findings": 0,
        "broken": 0,
    }
