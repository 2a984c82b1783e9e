"""Hot state: the tier process's request to the hot process for state that no file has. Belongs to the tier process."""

from __future__ import annotations

import asyncio

from thermocline.broker.helpers import HelperLink, HelperRequestCode, StateAnswer, StateAsk
from thermocline.broker.state import PoppedOffsets
from thermocline.remoting.errors import UnavailableError

TIMEOUT_S = 10.0


class HotState:
    """One question at a time."""

    def __init__(self) -> None:
        self._number = 0
        self._answer: asyncio.Future[StateAnswer] | None = None

    async def popped(self, link: HelperLink) -> PoppedOffsets:
        """The first offset in flight of each queue and popping group.

        Raises:
            UnavailableError: The hot process did not answer in time.
        """
        self._number += 1
        self._answer = asyncio.get_running_loop().create_future()
        link.tell(HelperRequestCode.STATE_ASK, StateAsk(number=self._number))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return (await self._answer).popped
        except TimeoutError as error:
            raise UnavailableError("the hot process does not say what was popped") from error
        finally:
            self._answer = None

    def answered(self, answer: StateAnswer) -> None:
        """An answer has come; one to a question that was given up is passed over."""
        if self._answer is not None and not self._answer.done() and answer.number == self._number:
            self._answer.set_result(answer)
