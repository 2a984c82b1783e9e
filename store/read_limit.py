"""Read limit: messages that not all brokers of the SyncStateSet have are not read, so that no consumer has seen what a
new master does not have.

    append -> hold: the queue waits        -> pulls at it are not woken
    report -> confirm offset -> advanced   -> pulls at queues that have more to be read are

A queue is woken whenever the confirm offset passes, until it has passed the queue's last message that was held.
Bound: one entry for each queue.
Owner: the loop thread.
Source: DefaultMessageStore.getConfirmOffset, ReputMessageService, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.queues import ConsumeQueue

Wake = Callable[[Sequence[ConsumeQueue]], None]


class ReadLimit:
    """One store's, as long as its broker has one role."""

    def __init__(self, confirm_offset: Callable[[], PhysicalOffset]) -> None:
        """`confirm_offset`: the log below it may be read; never goes back."""
        self._confirm_offset = confirm_offset
        self._held: dict[ConsumeQueue, PhysicalOffset] = {}
        self._wake: Wake | None = None

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """The log below it may be read."""
        return self._confirm_offset()

    @property
    def held_count(self) -> int:
        """How many queues have messages that may not be read yet."""
        return len(self._held)

    def show(self, queues: Iterable[ConsumeQueue], end_offset: PhysicalOffset, wake: Wake) -> None:
        """Wake the pulls at these queues when the log may be read up to `end_offset`, at once if it may."""
        queues = list(queues)
        if end_offset <= self.confirm_offset:
            wake(queues)
            return
        self._wake = wake
        for queue in queues:
            self._held[queue] = end_offset

    def advanced(self) -> None:
        """The confirm offset may have changed."""
        if self._wake is None or not self._held:
            return
        confirm_offset, held = self.confirm_offset, self._held
        self._held = {queue: end for queue, end in held.items() if end > confirm_offset}
        self._wake(list(held))

    def end(self) -> None:
        """The broker's role has ended: wake all that wait, to look again."""
        held, self._held = self._held, {}
        if self._wake is not None and held:
            self._wake(list(held))
