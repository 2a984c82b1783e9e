"""Followed incarnations: which life of each topic of its source a read-only broker shows.

File: thermocline/followedTopics.json (with `.bak`)    {"incarnations": {"orders": 7}}

A topic that was deleted at the source and made again, while this broker was down, has the same name and other messages:
what groups had consumed of the life before counts for nothing in it.
The file is written after what it tells is durable. A topic that it does not have is taken for the same as before.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.errors import CorruptDataError

FILE_NAME = "followedTopics.json"


class _File(msgspec.Struct):
    incarnations: dict[str, int]


class FollowedIncarnations:
    """A StateFile. Belongs to the hot process's loop."""

    def __init__(self) -> None:
        self.table: dict[str, int] = {}
        """Topic -> the id of its incarnation at the source."""

    def load(self, data: bytes | None) -> None:
        """Load the file's content.

        Raises:
            CorruptDataError: It is none.
        """
        if data is None:
            return
        try:
            self.table = msgspec.json.decode(data, type=_File).incarnations
        except msgspec.DecodeError as error:
            raise CorruptDataError("the incarnations of followed topics cannot be read", file=FILE_NAME) from error

    def encode(self) -> bytes:
        """The file's content."""
        return msgspec.json.encode(_File(incarnations=self.table))
