"""A slave reports its end when that is new, and at its interval when it is not.

Covers `replication/slave_session.py`.
"""

from __future__ import annotations

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.plain_codec import PlainCodec
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.slave_session import SlaveSession

START_MS = 1_000_000


def test_when_a_report_is_due() -> None:
    settings = ReplicationSettings(heartbeat_interval_ms=100)
    session = SlaveSession(settings, end_offset=PhysicalOffset(50), now_ms=START_MS)
    first, second = (PlainCodec().encode_report(PhysicalOffset(offset)) for offset in (50, 60))
    reports = [
        session.report(PhysicalOffset(offset), now_ms=START_MS + after_ms)
        for offset, after_ms in [(50, 0), (50, 99), (50, 100), (50, 199), (60, 199), (60, 298), (60, 299)]
    ]
    assert reports == [first, None, first, None, second, None, second]
