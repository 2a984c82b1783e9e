"""A bridge that takes what it is given, or refuses it."""

from __future__ import annotations

from thermocline.broker.pops import RecordPlace
from thermocline.remoting.errors import ServiceUnavailableError
from thermocline.store.log import MessageDraft


class Bridge:
    """Stands for EscapeBridge."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, int | None]] = []
        """Topic, body, and when it is due."""
        self.refused: set[bytes] = set()
        self.halves: list[MessageDraft] = []

    async def send(
        self,
        draft: MessageDraft,
        *,
        topic: str = "",
        place: RecordPlace | None = None,
        due_ms: int | None = None,
        is_half: bool = False,
    ) -> None:
        if bytes(draft.body) in self.refused:
            raise ServiceUnavailableError("refused")
        if is_half:
            self.halves.append(draft)
            return
        self.sent.append((topic or draft.topic, bytes(draft.body), due_ms))

    async def record_place(self, topic: str) -> RecordPlace:
        return RecordPlace(broker_name="broker-b", queue_id=0)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.sent]
