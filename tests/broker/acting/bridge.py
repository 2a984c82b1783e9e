"""A bridge that takes what it is given, or refuses it."""

from __future__ import annotations

from thermocline.remoting.errors import ServiceUnavailableError
from thermocline.store.log import MessageDraft


class Bridge:
    """Stands for EscapeBridge."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, int | None]] = []
        """Topic, body, and when it is due."""
        self.refused: set[bytes] = set()

    async def send(self, draft: MessageDraft, *, topic: str = "", due_ms: int | None = None) -> None:
        if bytes(draft.body) in self.refused:
            raise ServiceUnavailableError("refused")
        self.sent.append((topic or draft.topic, bytes(draft.body), due_ms))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.sent]
