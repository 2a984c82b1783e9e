"""Peer messages: what controllers say to one another, as MessagePack; PySyncObj's messages without its pickles.

    envelope   group, sender, starts, sequence, message
    message    one of five, by its member `type`

`(starts, sequence)` rises with each message of a sender, across its restarts: a receiver drops what does not rise, so
that no message counts twice and none overtakes another on a second connection. A message is bounded by the frame of the
port; it holds one batch of entries (ENTRIES_BYTES_MAX and one entry) or one piece of a snapshot (PIECE_BYTES).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from thermocline.controller.consensus.journal import Entry
from thermocline.remoting.errors import InvalidRequestError

ENTRIES_BYTES_MAX = 1 << 20
"""Of the commands in one message; PySyncObj would cut a command of this size into pickled parts."""
PIECE_BYTES = 1 << 16


class RequestVote(msgspec.Struct, frozen=True, kw_only=True, tag="requestVote"):
    """A candidate asks for a vote."""

    term: int
    last_log_index: int
    last_log_term: int


class ResponseVote(msgspec.Struct, frozen=True, kw_only=True, tag="responseVote"):
    """A vote."""

    term: int


class AppendEntries(msgspec.Struct, frozen=True, kw_only=True, tag="appendEntries"):
    """Entries behind a given one, or none: then it says that the leader is there."""

    term: int
    commit_index: int
    previous_index: int
    previous_term: int
    entries: list[Entry]


class SnapshotPiece(msgspec.Struct, frozen=True, kw_only=True, tag="snapshotPiece"):
    """A piece of the leader's snapshot; the last one is empty. `data` None: no piece is ready.

    It commits nothing: the receiver's own log is not compared with the leader's by it. PySyncObj would commit it.
    """

    term: int
    data: bytes | None
    is_first: bool = False
    is_last: bool = False


class NextIndex(msgspec.Struct, frozen=True, kw_only=True, tag="nextIndex"):
    """A follower's answer: the entry that it wants next. `term`: its own when it answered."""

    term: int
    next_index: int
    reset: bool
    success: bool


Message: TypeAlias = RequestVote | ResponseVote | AppendEntries | SnapshotPiece | NextIndex


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its sender."""

    group: str
    sender: str
    starts: int
    sequence: int
    message: Message

    def encode(self) -> bytes:
        """As MessagePack."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Envelope:
        """From MessagePack.

        Raises:
            InvalidRequestError: It is none.
        """
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"a message between controllers cannot be read: {error}") from error


class RisingOrder:
    """Which messages of a sender are newer than all before them; see the module."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def is_newer(self, envelope: Envelope) -> bool:
        """Whether the message is to be taken; then it is the last one."""
        order = (envelope.starts, envelope.sequence)
        if order <= self._last.get(envelope.sender, (0, 0)):
            return False
        self._last[envelope.sender] = order
        return True


def from_library(message: dict[str, Any], *, term: int) -> Message | None:
    """What PySyncObj sends; None for what is not sent here. `term`: the sender's now."""
    match message["type"]:
        case "request_vote":
            return RequestVote(
                term=message["term"],
                last_log_index=message["last_log_index"],
                last_log_term=message["last_log_term"],
            )
        case "response_vote":
            return ResponseVote(term=message["term"])
        case "next_node_idx":
            return NextIndex(
                term=term,
                next_index=message["next_node_idx"],
                reset=message["reset"],
                success=message["success"],
            )
        case "append_entries" if "prevLogIdx" in message:
            assert "transmission" not in message, "no command is as large as a batch"
            return AppendEntries(
                term=message["term"],
                commit_index=message["commit_index"],
                previous_index=message["prevLogIdx"],
                previous_term=message["prevLogTerm"],
                entries=message["entries"],
            )
        case "append_entries":
            data, is_first, is_last = message["serialized"] or (None, False, False)
            return SnapshotPiece(
                term=message["term"],
                data=data,
                is_first=is_first,
                is_last=is_last,
            )
    return None


def to_library(message: Message) -> dict[str, Any]:
    """What PySyncObj receives."""
    match message:
        case RequestVote():
            return {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_log_index,
                "last_log_term": message.last_log_term,
            }
        case ResponseVote():
            return {"type": "response_vote", "term": message.term}
        case NextIndex():
            return {
                "type": "next_node_idx",
                "next_node_idx": message.next_index,
                "reset": message.reset,
                "success": message.success,
            }
        case AppendEntries():
            return {
                "type": "append_entries",
                "term": message.term,
                "commit_index": message.commit_index,
                "prevLogIdx": message.previous_index,
                "prevLogTerm": message.previous_term,
                "entries": message.entries,
            }
        case SnapshotPiece():
            piece = None if message.data is None else (message.data, message.is_first, message.is_last)
            return {"type": "append_entries", "term": message.term, "commit_index": 0, "serialized": piece}
