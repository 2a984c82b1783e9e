"""Group holds: groups that are about to be moved, and that accept no members and no other moves meanwhile.

    hold (prepare) -> [check refuses members] -> release (applied, aborted), or HOLD_MS pass

In memory: after a restart no group is held, and a prepared plan has to be prepared again.
Bound: one hold a group, for HOLD_MS.
Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.remoting.bodies.hand_off import HandOffBody
from thermocline.remoting.errors import GroupHeldError

HOLD_MS = 30_000


class Hold(msgspec.Struct, frozen=True):
    """`plan`: what is to be applied."""

    plan: HandOffBody
    until_ms: int


class GroupHolds:
    """The groups that are held."""

    def __init__(self, *, clock: Callable[[], int]) -> None:
        """`clock`: steady, ms."""
        self._clock = clock
        self._holds: dict[str, Hold] = {}

    def hold(self, plan: HandOffBody) -> None:
        """Hold the plan's group, or hold it on.

        Raises:
            GroupHeldError: It is held by another receipt.
        """
        present = self._find(plan.group)
        if present is not None and present.plan.receipt_id != plan.receipt_id:
            raise _held(plan.group, present, self._clock())
        self._holds[plan.group] = Hold(plan, self._clock() + HOLD_MS)

    def find(self, group: str, receipt_id: str) -> HandOffBody | None:
        """The plan that this receipt has prepared for the group; None when the hold has ended."""
        present = self._find(group)
        return present.plan if present is not None and present.plan.receipt_id == receipt_id else None

    def release(self, group: str, receipt_id: str) -> None:
        """End a hold of this receipt, if there is one."""
        if self.find(group, receipt_id) is not None:
            del self._holds[group]

    def check(self, group: str) -> None:
        """Pass a group that is not held. On the path of every pull: nothing but a test while no group is.

        Raises:
            GroupHeldError: It is.
        """
        if self._holds:
            present = self._find(group)
            if present is not None:
                raise _held(group, present, self._clock())

    def _find(self, group: str) -> Hold | None:
        present = self._holds.get(group)
        if present is not None and present.until_ms <= self._clock():
            del self._holds[group]
            return None
        return present


def _held(group: str, hold: Hold, now_ms: int) -> GroupHeldError:
    return GroupHeldError(
        "the group is being handed over, ask again in a moment",
        group=group,
        receipt=hold.plan.receipt_id,
        left_ms=hold.until_ms - now_ms,
    )
