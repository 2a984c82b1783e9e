"""Both ends of a connection under a controller, beside what replica_set.py runs through.

Covers `replication/auto_switch_master.py`, `replication/auto_switch_slave.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import OffsetOutOfRangeError, ProtocolError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.auto_switch_codec import (
    TRANSFER_HEAD,
    EpochTransferHead,
    MasterHandshake,
    SlaveHandshake,
    decode_transfer_head,
    encode_master_handshake,
    encode_report,
    encode_slave_handshake,
    encode_transfer_head,
)
from thermocline.replication.auto_switch_master import AutoSwitchMasterSession
from thermocline.replication.auto_switch_slave import AutoSwitchSlaveSession
from thermocline.replication.epoch_file import EpochFile, StaleEpochError
from thermocline.replication.epochs import Alignment, EpochEntry, Epochs
from thermocline.replication.replication_settings import ReplicationSettings

FILE_BYTES = 1_000
SETTINGS = ReplicationSettings(transfer_bytes_max=400)
SLAVE = SlaveHandshake(2, begins_with_last_file=False, is_learner=False)


class Log(msgspec.Struct):
    """A log's measures."""

    append_offset: PhysicalOffset
    min_offset: PhysicalOffset = LOG_START
    file_bytes: int = FILE_BYTES


def epochs(*entries: tuple[int, int]) -> Epochs:
    return Epochs([EpochEntry(epoch, PhysicalOffset(start)) for epoch, start in entries])


def master_of(log: Log, entries: Epochs) -> AutoSwitchMasterSession:
    return AutoSwitchMasterSession(log, entries, SETTINGS, confirm_offset=lambda: PhysicalOffset(77), now_ms=0)


def slave_of(
    *entries: tuple[int, int], end: int, min_offset: int = 0, handshake: SlaveHandshake = SLAVE
) -> tuple[AutoSwitchSlaveSession, EpochFile]:
    disk = SimulatedDisk()
    disk.make_directory("/store")
    file = EpochFile(disk, "/store")
    for epoch, start in entries:
        file.begin(EpochEntry(epoch, PhysicalOffset(start)))
    session = AutoSwitchSlaveSession(
        file,
        SETTINGS,
        handshake,
        min_offset=PhysicalOffset(min_offset),
        end_offset=PhysicalOffset(end),
        now_ms=0,
    )
    return session, file


def answer(session: AutoSwitchSlaveSession, end: int, *entries: tuple[int, int]) -> None:
    data = encode_master_handshake(MasterHandshake(PhysicalOffset(end), epochs(*entries)))
    for byte in data:
        assert list(session.receive(bytes([byte]), now_ms=0)) == []


def head(offset: int, size_bytes: int, epoch: int, start: int, confirm: int = 0) -> bytes:
    entry = EpochEntry(epoch, PhysicalOffset(start))
    return encode_transfer_head(EpochTransferHead(PhysicalOffset(offset), size_bytes, entry, PhysicalOffset(confirm)))


def test_no_transfer_crosses_an_epoch_or_a_files_end() -> None:
    entries = epochs((1, 0), (2, 250), (4, 900), (5, 1_200))
    session = master_of(Log(append_offset=PhysicalOffset(1_500)), entries)
    session.receive(encode_slave_handshake(SLAVE) + encode_report(PhysicalOffset(100)), now_ms=0)
    sent = []
    while (transfer := session.next_transfer(now_ms=0)) is not None:
        decoded = decode_transfer_head(transfer.head, 0)
        assert (decoded.offset, decoded.size_bytes, decoded.confirm_offset) == (
            transfer.offset,
            transfer.size_bytes,
            77,
        )
        sent.append((transfer.offset, transfer.size_bytes, *decoded.entry))
    assert sent == [
        (100, 150, 1, 0),
        (250, 400, 2, 250),
        (650, 250, 2, 250),
        (900, 100, 4, 900),
        (1_000, 200, 4, 900),
        (1_200, 300, 5, 1_200),
    ]
    heartbeat = session.next_transfer(now_ms=SETTINGS.heartbeat_interval_ms)
    assert heartbeat is not None
    assert decode_transfer_head(heartbeat.head, 0).offset == 1_500


@pytest.mark.parametrize(("last_file", "expected"), [(False, 1_000), (True, 3_000)])
def test_where_an_empty_slave_begins(last_file: bool, expected: int) -> None:
    log = Log(append_offset=PhysicalOffset(3_100), min_offset=PhysicalOffset(1_000))
    session = master_of(log, epochs((1, 0)))
    session.receive(
        encode_slave_handshake(SlaveHandshake(2, begins_with_last_file=last_file, is_learner=False)), now_ms=0
    )
    session.receive(encode_report(LOG_START), now_ms=0)
    assert session.next_offset == expected
    assert session.was_empty


def test_a_handshake_is_answered_each_time_until_the_first_report() -> None:
    """RocketMQ's slave repeats it every five seconds."""
    session = master_of(Log(append_offset=PhysicalOffset(10)), epochs((1, 0)))
    greeting = encode_slave_handshake(SLAVE)
    assert session.take_reply() == b""
    assert not session.receive(greeting[:9], now_ms=0)
    assert session.take_reply() == b""
    session.receive(greeting[9:] + greeting, now_ms=0)
    reply = encode_master_handshake(MasterHandshake(PhysicalOffset(10), epochs((1, 0))))
    assert session.take_reply() == reply
    session.receive(greeting, now_ms=0)
    assert session.take_reply() == reply
    assert session.slave == SLAVE
    assert session.receive(encode_report(PhysicalOffset(10)), now_ms=0)
    with pytest.raises(ProtocolError):
        session.receive(greeting, now_ms=0)


@pytest.mark.parametrize(
    "frames",
    [
        encode_report(LOG_START),
        bytes.fromhex("00000003 0000000000000000"),
        encode_slave_handshake(SLAVE) + encode_slave_handshake(SLAVE._replace(replica_id=3)),
    ],
    ids=["a report first", "a state that no slave sends", "another slave"],
)
def test_a_slave_that_does_not_keep_to_the_order(frames: bytes) -> None:
    session = master_of(Log(append_offset=PhysicalOffset(10)), epochs((1, 0)))
    with pytest.raises(ProtocolError):
        session.receive(frames, now_ms=0)


def test_a_log_that_is_older_than_the_oldest_epoch_is_not_sent() -> None:
    session = master_of(Log(append_offset=PhysicalOffset(500)), epochs((3, 200)))
    session.receive(encode_slave_handshake(SLAVE) + encode_report(PhysicalOffset(100)), now_ms=0)
    with pytest.raises(OffsetOutOfRangeError):
        session.next_transfer(now_ms=0)


def test_a_slave_says_nothing_before_its_log_is_the_beginning_of_the_masters() -> None:
    session, file = slave_of((1, 0), (2, 100), end=130)
    assert session.report(PhysicalOffset(130), now_ms=0) is None
    answer(session, 500, (1, 0), (3, 90))
    assert session.must_cut
    assert session.alignment == Alignment(PhysicalOffset(90), 1)
    assert session.report(PhysicalOffset(130), now_ms=0) is None
    file.cut(session.alignment)
    again, file = slave_of(*file.epochs, end=90)
    answer(again, 500, (1, 0), (3, 90))
    assert not again.must_cut
    assert again.report(PhysicalOffset(90), now_ms=0) == encode_report(PhysicalOffset(90))
    (part,) = again.receive(head(90, 3, 3, 90, confirm=60) + b"abc", now_ms=0)
    assert (part.offset, bytes(part.data), again.confirm_offset) == (90, b"abc", 60)
    assert list(file.epochs) == [(1, 0), (3, 90)]


def test_an_epoch_is_recorded_before_its_first_bytes_are_handed_out() -> None:
    session, file = slave_of((1, 0), end=100)
    answer(session, 300, (1, 0), (2, 200))
    data = head(100, 100, 1, 0) + bytes(100) + head(200, 100, 2, 200) + bytes(100)
    seen = [(part.offset, len(file.epochs)) for part in session.receive(data, now_ms=0)]
    assert seen == [(100, 1), (200, 2)]


@pytest.mark.parametrize(
    ("own", "end", "min_offset"),
    [(((1, 0),), 130, 0), ((), 130, 0), (((2, 0),), 3_000, 2_000)],
    ids=["of another set", "without epochs", "below the oldest file"],
)
def test_a_log_that_has_nothing_in_common_is_refused(
    own: tuple[tuple[int, int], ...], end: int, min_offset: int
) -> None:
    session, _ = slave_of(*own, end=end, min_offset=min_offset)
    with pytest.raises(OffsetOutOfRangeError, match="empty store"):
        answer(session, 5_000, (2, 0), (5, 1_500))


def test_an_empty_slave_takes_what_comes() -> None:
    session, file = slave_of((9, 0), end=0)
    answer(session, 5_000, (2, 0), (5, 1_500))
    assert session.alignment is None
    assert session.report(LOG_START, now_ms=0) == encode_report(LOG_START)
    (part,) = session.receive(head(2_000, 3, 5, 1_500) + b"abc", now_ms=0)
    assert part.offset == 2_000
    assert list(file.epochs) == [(2, 0), (5, 1_500)]


def test_heartbeats() -> None:
    """Of RocketMQ's master: with its first epoch, or without an offset."""
    session, file = slave_of((1, 0), (2, 100), end=150)
    answer(session, 150, (1, 0), (2, 100))
    assert list(session.receive(head(150, 0, 1, 0, confirm=140), now_ms=0)) == []
    assert session.confirm_offset == 140
    nothing = TRANSFER_HEAD.pack(2, 0, -1, 1, 0, -1)
    assert list(session.receive(nothing, now_ms=0)) == []
    with pytest.raises(ProtocolError):
        list(session.receive(head(151, 0, 2, 100), now_ms=0))
    assert list(file.epochs) == [(1, 0), (2, 100)]


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (head(151, 9, 2, 100), ProtocolError),  # not where the log ends
        (head(150, 9, 3, 140), ProtocolError),  # an epoch that began where the log has another one's bytes
        (head(150, 9, 1, 150), StaleEpochError),
    ],
)
def test_bytes_that_do_not_follow(frame: bytes, error: type[Exception]) -> None:
    session, _ = slave_of((1, 0), (2, 100), end=150)
    answer(session, 400, (1, 0), (2, 100))
    with pytest.raises(error):
        list(session.receive(frame + bytes(9), now_ms=0))


def test_a_master_that_does_not_wait_for_a_report() -> None:
    session, _ = slave_of((1, 0), end=150)
    data = encode_master_handshake(MasterHandshake(PhysicalOffset(90), epochs((1, 0))))
    with pytest.raises(ProtocolError):
        list(session.receive(data + head(150, 0, 1, 0), now_ms=0))
