"""Log files that open half messages hold: retention stops there, asks for them back, and goes on once they are free.

Covers `broker/due/transaction_counts.py`, `broker/due/transaction_settings.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.broker.control_broker import ControlBroker, control_broker
from thermocline.broker.assembly.recurring import make_transaction_service
from thermocline.broker.helpers.shared_page import SharedPage
from thermocline.broker.tier.store_rounds import StoreRounds
from thermocline.remoting.records.properties import encode_properties
from thermocline.store.log.message_draft import MessageDraft, PutResult
from thermocline.store.retention import DISK_NEARLY_FULL, RetentionGate
from thermocline.transactions.half_message import half_draft

LOG_FILE_BYTES = 1 << 20
GONE_AT_ONCE = {"log_file_bytes": LOG_FILE_BYTES, "file_reserved_ms": -(1 << 50), "delete_when_hours": ()}
"""Whatever the age of a file, which the real disk tells by another clock than the test's."""


@asynccontextmanager
async def rounds_of(broker: ControlBroker, folder: Path) -> AsyncIterator[StoreRounds]:
    """The rounds of a broker, which the test drives."""
    parts = broker.parts
    page = SharedPage.create(folder / "page", generation=1, build_id=1)
    rounds = StoreRounds(
        parts.base.store,
        retention=parts.base.store.retention,
        page=page,
        clock=broker.clock,
        gate=lambda: RetentionGate(transactions_offset=parts.due.transactions.held_offset),
        index_timestamp_ms=lambda: 0,
        on_tick=lambda _pressure: None,
        on_wanted=parts.due.transactions.release_below,
    )
    try:
        yield rounds
    finally:
        await rounds.close()
        page.close()


def put_half(broker: ControlBroker) -> PutResult:
    result = broker.parts.base.store.put(
        half_draft(
            MessageDraft(
                topic="T",
                queue_id=0,
                body=b"half",
                properties_text=encode_properties({"PGROUP": "g", "UNIQ_KEY": "u", "TRAN_MSG": "true"}),
                born_timestamp_ms=broker.clock(),
                born_host=("10.0.0.7", 4711),
            )
        )
    )
    broker.parts.due.transactions.prepared("T")
    return result


def fill(broker: ControlBroker, files: int) -> None:
    """Let the log go on in another file."""
    log = broker.parts.base.store.commit_log
    end_offset = log.files.last.base_offset + files * LOG_FILE_BYTES
    while log.append_offset < end_offset:
        broker.put("Other", 0, bytes(64 << 10))


async def test_files_wait_for_open_transactions(tmp_path: Path) -> None:
    async with control_broker(tmp_path / "store", **GONE_AT_ONCE) as broker, rounds_of(broker, tmp_path) as rounds:
        parts = broker.parts
        service = make_transaction_service(parts)
        log = parts.base.store.commit_log
        fill(broker, 1)
        half = put_half(broker)
        fill(broker, 2)
        await rounds.sync_derived()
        await rounds.run_retention()
        assert log.min_offset == LOG_FILE_BYTES <= half.physical_offset
        assert parts.due.transactions.is_release_wanted

        # A full disk does not keep the copy out that lets the file go.
        log.pause(DISK_NEARLY_FULL)
        broker.clock.now_ms += 6_001
        assert await service.check() == 1
        await rounds.sync_derived()
        service.commit_progress()
        await rounds.run_retention()
        assert log.min_offset == 3 * LOG_FILE_BYTES
        assert not parts.due.transactions.is_release_wanted
        service.close()
