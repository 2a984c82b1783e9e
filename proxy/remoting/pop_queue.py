"""PopQueue: one queue of a consumer group as one classic push consumer sees it while POP serves it.

A classic consumer counts: it pulls from a position, gets the next one, and says "everything below this is done". POP
hands out single messages with handles. This is the map between them:

    position -> handle     positions rise; a message has its own queue offset if that is not below the next position,
                           else the next position: so it is with messages that came back, and behind them

    pull from the next position                   goes on
    pull from an earlier one                      the client did not get the last answer: what it held is given back
    pull behind a question for the group's offset the client begins anew, so all that it held is given back
    "done below p"                                all handles below p are acknowledged
    a message is sent back                        its handle is taken out, and changed instead

Nothing of it is durable. What a proxy forgets, the broker hands out again when its invisible time is over.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thermocline.proxy.messaging import HeldMessage, ProxyHandle

__all__ = ["Held", "PopQueue"]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One message that the client has."""

    handle: ProxyHandle
    message_id: str
    reconsume_times: int

    @classmethod
    def of(cls, message: HeldMessage) -> Held:
        """What is kept of a message."""
        times = message.record.reconsume_times
        return cls(handle=message.handle, message_id=message.message_id, reconsume_times=times)


class PopQueue:
    """See the module. Belongs to one event loop."""

    __slots__ = ("_held", "_positions", "begins_anew", "next_position", "turn")

    def __init__(self, position: int) -> None:
        """`position`: the first one that the client pulls from."""
        self.next_position = position
        self.turn = 0
        """The number of the last pull: what comes for an earlier one is given back."""
        self.begins_anew = False
        """The client has queried the group's offset, as it does before its first pull of a queue."""
        self._held: dict[int, Held] = {}
        self._positions: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, position: int) -> list[Held]:
        """The client pulls from here; what it does not hold any more."""
        self.turn += 1
        lost: list[Held] = []
        if self.begins_anew or position > self.next_position:
            lost = self.take_below(None)
        elif position < self.next_position:
            lost = [self._remove(each) for each in list(self._held) if each >= position]
        self.begins_anew = False
        self.next_position = position
        return lost

    def place(self, messages: Sequence[HeldMessage]) -> list[int]:
        """Give positions to messages that go to the client now, in their order."""
        positions = []
        for message in messages:
            position = self.next_position
            if not message.handle.receipt.retry_flag:
                position = max(position, int(message.handle.receipt.queue_offset))
            self.next_position = position + 1
            self._held[position] = Held.of(message)
            self._positions[message.handle.physical_offset] = position
            positions.append(position)
        return positions

    def take_below(self, position: int | None) -> list[Held]:
        """The client is done with everything below a position; None: with all."""
        done = [each for each in self._held if position is None or each < position]
        return [self._remove(each) for each in done]

    def take_returned(self, physical_offset: int) -> Held | None:
        """The client sends this message back; None where it does not hold it."""
        position = self._positions.get(physical_offset)
        return None if position is None else self._remove(position)

    def late_at_ms(self) -> int | None:
        """When the broker takes back the message that the client has had longest; None: it holds none."""
        oldest = next(iter(self._held.values()), None)
        return None if oldest is None else oldest.handle.receipt.revive_time_ms

    def is_late(self, now_ms: int) -> bool:
        """Whether the client was not done in time with the message that it has had longest."""
        late_at_ms = self.late_at_ms()
        return late_at_ms is not None and late_at_ms <= now_ms

    def take_expired(self, now_ms: int) -> int:
        """Forget what the broker has taken back since; how many."""
        expired = [each for each, held in self._held.items() if held.handle.receipt.revive_time_ms <= now_ms]
        for position in expired:
            self._remove(position)
        return len(expired)

    def _remove(self, position: int) -> Held:
        held = self._held.pop(position)
        if self._positions.get(held.handle.physical_offset) == position:
            del self._positions[held.handle.physical_offset]
        return held
