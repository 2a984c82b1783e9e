"""What has expired stays so over a restart, also when the wall clock was set back meanwhile.

Covers `broker/tables/system_topics.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.control_broker import control_broker
from tests.clock import Clock
from thermocline.broker.state_files.config_persister import ConfigPersister
from thermocline.broker.tables.kept_clock import FILE_NAME, KeptClock
from thermocline.remoting.errors import CorruptDataError, UnavailableError
from thermocline.store.config.store_clock import StoreClock
from thermocline.store.files.disk import RealDisk

HOUR_MS = 3_600_000


async def test_time_goes_on_where_it_was_kept(tmp_path: Path) -> None:
    clock = Clock()
    start_ms = clock.now_ms
    async with control_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("T", queues=1, attributes=f"+thermocline.ttl.ms={HOUR_MS}")
        broker.put("T")
        clock.now_ms += 2 * HOUR_MS
        assert broker.parts.tables.topics.expired_before("T") == start_ms + HOUR_MS
        await broker.parts.tables.kept_clock.keep()
        clock.now_ms += HOUR_MS
    clock.now_ms = start_ms + HOUR_MS // 2
    async with control_broker(tmp_path, clock=clock) as broker:
        assert broker.parts.tables.kept_clock.kept_ms == start_ms + 2 * HOUR_MS
        assert broker.parts.tables.topics.expired_before("T") >= start_ms + HOUR_MS
        put = broker.put("T")
        assert put.store_timestamp_ms >= start_ms + 2 * HOUR_MS, "a new message has its whole time before it"
        assert broker.parts.reads.visible.hot_start(broker.parts.base.store.queues.find("T", 0)) == 1
        clock.now_ms = start_ms + 5 * HOUR_MS
        assert broker.parts.base.store.clock.now_ms() == clock.now_ms, "the wall clock has caught up"


async def test_only_a_time_on_the_disk_counts_as_kept(tmp_path: Path) -> None:
    path = f"{tmp_path}/folder/clock.json"
    persister = ConfigPersister(RealDisk())
    wall = Clock()
    kept = KeptClock(StoreClock(wall), persister)
    persister.register(FILE_NAME, path, kept.encode)
    with pytest.raises(UnavailableError):
        await kept.keep()  # there is no such folder
    assert kept.kept_ms == 0
    Path(path).parent.mkdir()
    await kept.keep()
    assert kept.kept_ms == wall.now_ms
    assert json.loads(Path(path).read_text()) == {"storeMs": wall.now_ms}
    written_ns = Path(path).stat().st_mtime_ns
    await kept.keep()
    assert Path(path).stat().st_mtime_ns == written_ns, "the same time is not written twice"
    await persister.close()


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"storeMs":"x"}', b"[]"])
def test_another_file_is_refused(tmp_path: Path, data: bytes) -> None:
    kept = KeptClock(StoreClock(Clock()), ConfigPersister(RealDisk()))
    with pytest.raises(CorruptDataError):
        kept.load(data, wall_ms=0)
