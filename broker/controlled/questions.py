"""Questions of a broker to the controller that leads, and the answers.

Source: broker/out/BrokerOuterAPI.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from thermocline.remoting.response_code import ResponseCode

Members = frozenset[int]


class Ask(Enum):
    """The kinds of questions."""

    NEXT_ID = auto()
    """Which number to apply for."""
    APPLY = auto()
    """A number is applied for."""
    REGISTER = auto()
    """Where this broker serves; who is the master, if it is alive?"""
    ELECT = auto()
    """This broker would be the master; who is it?"""
    REPLICA_INFO = auto()
    """Who is the master?"""
    ALTER = auto()
    """The master would have another SyncStateSet."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question. What it does not need is empty."""

    ask: Ask
    broker_id: int = 0
    check_code: str = ""
    master_epoch: int = 0
    set_epoch: int = 0
    members: Members = frozenset()


class MasterNews(msgspec.Struct, frozen=True, kw_only=True):
    """A controller's record of this broker's set."""

    master_id: int | None
    """None: there is no master now."""
    master_address: str
    master_epoch: int
    set_epoch: int
    members: Members


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    code: int = ResponseCode.SUCCESS
    remark: str = ""
    next_id: int = 0
    """Of NEXT_ID."""
    news: MasterNews | None = None
    """Of REGISTER, ELECT, REPLICA_INFO and ALTER; the last one tells the set alone."""

    @property
    def is_granted(self) -> bool:
        """Whether it was done."""
        return self.code == ResponseCode.SUCCESS
