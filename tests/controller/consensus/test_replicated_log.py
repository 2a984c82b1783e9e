"""The rules that PySyncObj leaves out, one by one, on two or three logs whose messages the test carries.

Covers `controller/consensus/replicated_log.py`, `controller/consensus/peer_messages.py`.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.controller.consensus.journal import Journal, SnapshotFile, encode_snapshot
from thermocline.controller.consensus.peer_messages import (
    AppendEntries,
    Envelope,
    Message,
    NextIndex,
    RequestVote,
    ResponseVote,
    RisingOrder,
    SnapshotPiece,
)
from thermocline.controller.consensus.raft_library import syncobj
from thermocline.controller.consensus.replicated_log import ReplicatedLog
from thermocline.remoting.errors import InvalidRequestError

NODES = ("n0", "n1", "n2")


class Node:
    """A log, and what it has sent."""

    def __init__(self, name: str, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.sent: list[tuple[str, Message]] = []
        self.applied: list[str] = []
        self.journal = Journal(self.disk, "/c", group="g", node=name, nodes=NODES, start_floor=0)
        self.log = ReplicatedLog(
            self.journal,
            node=name,
            peers=[other for other in NODES if other != name],
            apply=lambda command: self.applied.append(command.decode()) or True,  # type: ignore[func-returns-value]
            encode_tables=lambda: json.dumps(self.applied).encode(),
            restore_tables=self._restore,
            send=self._send,
            compact_entries=10,
        )
        for other in NODES:
            if other != name:
                self.log.connected(other)

    def _restore(self, data: bytes) -> None:
        self.applied = json.loads(data)

    def _send(self, peer: str, message: Message) -> None:
        self.sent.append((peer, message))
        durable = self.disk.after_power_cut(Random(0), kept_share=0.0)
        again = Journal(durable, "/c", group="g", node=self.journal._vote.node, nodes=NODES, start_floor=0)
        kept = [entry for entry in self.journal[:] if entry[1] >= again[0][1]]  # a snapshot may cover the others
        assert again[:] == kept, "a message went out before the log was durable"
        assert again.getCurrentTerm() == self.log.term

    @property
    def entries(self) -> list[tuple[int, int]]:
        return [(index, term) for _, index, term in self.journal[:]]

    def answers(self) -> list[NextIndex]:
        return [message for _, message in self.sent if isinstance(message, NextIndex)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(syncobj, "monotonicTime", lambda: now[0])
    return now


def append(
    term: int, previous: tuple[int, int], entries: list[int], *, commit: int = 1, entry_term: int = 0
) -> Message:
    return AppendEntries(
        term=term,
        commit_index=commit,
        previous_index=previous[0],
        previous_term=previous[1],
        entries=[(b"\0c%d" % index, index, entry_term or term) for index in entries],
    )


def test_a_follower_confirms_what_is_on_its_disk(clock: list[float]) -> None:
    """`Node._send` compares the disk after a power cut with the log at each message."""
    node = Node("n1")
    node.log.receive("n0", append(1, (1, 0), [2, 3]))
    assert node.answers()[-1] == NextIndex(term=1, next_index=4, reset=False, success=True)
    node.log.receive("n0", append(1, (3, 1), [], commit=3))
    node.log.tick()
    assert node.applied == ["c2", "c3"]


def test_confirmed_entries_are_not_cut_off_by_a_message_that_was_sent_before(clock: list[float]) -> None:
    node = Node("n1")
    node.log.receive("n0", append(1, (1, 0), [2, 3, 4, 5]))
    node.log.receive("n0", append(1, (1, 0), [2]))
    assert [index for index, _ in node.entries] == [1, 2, 3, 4, 5]
    node.log.close()
    node = Node("n1", node.disk)  # which remembers no message
    node.log.receive("n0", append(1, (2, 1), [3]))
    assert [index for index, _ in node.entries] == [1, 2, 3, 4, 5]
    node.log.receive("n0", append(2, (1, 0), [2]))  # a later term: what was not committed may go
    assert node.entries == [(1, 0), (2, 2)]


def leading(clock: list[float]) -> Node:
    """A leader of term 1 with three entries of its own, of which none is committed."""
    node = Node("n0")
    clock[0] += 10
    node.log.tick()
    node.log.receive("n1", ResponseVote(term=1))
    assert node.log.is_leader
    for text in (b"a", b"b"):
        node.log.propose(text, lambda _: None)
        node.log.tick()
    assert [term for _, term in node.entries] == [0, 1, 1, 1]
    return node


def test_an_answer_of_another_term_is_not_counted(clock: list[float]) -> None:
    node = leading(clock)
    node.log.receive("n1", NextIndex(term=0, next_index=5, reset=False, success=True))
    node.log.tick()
    assert node.applied == []
    node.log.receive("n1", NextIndex(term=1, next_index=5, reset=False, success=True))
    node.log.tick()
    assert node.applied == ["a", "b"]


def test_a_leader_that_hears_no_majority_leads_no_more_and_acknowledges_nothing(clock: list[float]) -> None:
    node = leading(clock)
    results: list[object] = []
    node.log.propose(b"late", results.append)
    clock[0] += 2.0
    node.log.tick()
    assert not node.log.is_leader
    assert results == [None]  # given up


def test_a_piece_of_a_snapshot_commits_nothing_and_a_damaged_snapshot_is_not_used(clock: list[float]) -> None:
    node = Node("n1")
    node.log.receive("n0", append(1, (1, 0), [2, 3], commit=1))
    for data, is_first, is_last in ((b"no snapshot", True, False), (b"", False, True)):
        node.log.receive("n2", SnapshotPiece(term=2, data=data, is_first=is_first, is_last=is_last))
        node.log.tick()
    assert node.applied == []
    assert node.entries == [(1, 0), (2, 1), (3, 1)]


def test_a_snapshot_of_what_the_log_has_replaces_nothing(clock: list[float]) -> None:
    node = Node("n1")
    node.log.receive("n0", append(1, (1, 0), [2, 3, 4], commit=4))
    node.log.tick()
    old = SnapshotFile(before_last=(b"\0c2", 2, 1), last=(b"\0c3", 3, 1), tables=b'["other"]')
    for data, is_first, is_last in ((encode_snapshot(old), True, False), (b"", False, True)):
        node.log.receive("n0", SnapshotPiece(term=1, data=data, is_first=is_first, is_last=is_last))
    assert node.applied == ["c2", "c3", "c4"]
    assert [index for index, _ in node.entries] == [1, 2, 3, 4]


def test_a_node_that_is_far_behind_gets_a_snapshot_and_keeps_it(clock: list[float]) -> None:
    leader, behind = leading(clock), Node("n2")
    for number in range(30):
        leader.log.propose(b"%d" % number, lambda _: None)
        leader.log.tick()
        leader.log.receive("n1", NextIndex(term=1, next_index=leader.entries[-1][0] + 1, reset=False, success=True))
        leader.log.tick()
    assert len(leader.entries) < 15
    for _ in range(20):
        clock[0] += 0.3
        leader.log.receive("n1", NextIndex(term=1, next_index=leader.entries[-1][0] + 1, reset=False, success=True))
        leader.log.tick()
        messages, leader.sent = [message for peer, message in leader.sent if peer == "n2"], []
        for message in messages:
            behind.log.receive("n0", message)
            behind.log.tick()
        answers, behind.sent = behind.answers(), []
        for answer in answers:
            leader.log.receive("n2", answer)
            leader.log.tick()
    assert behind.applied == leader.applied
    behind.log.close()
    again = Node("n2", behind.disk)
    assert again.applied == [*leader.applied][: len(again.applied)]
    assert len(again.applied) > 20


def test_messages_of_a_sender_rise_across_its_starts() -> None:
    order = RisingOrder()

    def envelope(starts: int, sequence: int, sender: str = "n1") -> Envelope:
        message = RequestVote(term=1, last_log_index=1, last_log_term=0)
        return Envelope.decode(
            Envelope(group="g", sender=sender, starts=starts, sequence=sequence, message=message).encode()
        )

    assert order.is_newer(envelope(1, 5))
    assert not order.is_newer(envelope(1, 5))
    assert not order.is_newer(envelope(1, 4))
    assert order.is_newer(envelope(1, 4, "n2"))
    assert order.is_newer(envelope(2, 1))
    assert not order.is_newer(envelope(1, 6))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        Envelope.decode(data)
