"""Due message: what the timers want to have put into the store."""

from __future__ import annotations

from enum import Enum

import msgspec

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.log import MessageDraft


class DueKind(Enum):
    """Why a message is put."""

    DELIVER = "deliver"
    """Its time has come: it goes to its real topic."""
    ROLL = "roll"
    """The message is due beyond the wheel: it goes to the timer topic once more."""
    RELEASE = "release"
    """Its log file is to go: it goes to the timer topic once more, ahead of its time."""


class DueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to put."""

    kind: DueKind
    draft: MessageDraft
    physical_offset: PhysicalOffset
    """Of the record that it comes from."""
