"""HotState: an answer belongs to the question that was asked last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from thermocline.broker.helpers import HelperLink, HelperRequestCode, StateAnswer, StateAsk
from thermocline.broker.tier_process import hot_state
from thermocline.broker.tier_process.hot_state import HotState
from thermocline.remoting.errors import UnavailableError


@dataclass
class Hot:
    """The hot process's end."""

    asked: list[StateAsk] = field(default_factory=list)

    def tell(self, code: HelperRequestCode, body: msgspec.Struct) -> None:
        assert code == HelperRequestCode.STATE_ASK
        assert isinstance(body, StateAsk)
        self.asked.append(body)

    @property
    def link(self) -> HelperLink:
        return cast("HelperLink", self)


def popped(offset: int) -> list[tuple[str, str, int, int]]:
    return [("T", "G", 0, offset)]


def answer(number: int, offset: int) -> StateAnswer:
    return StateAnswer(number=number, popped=popped(offset))


async def test_a_late_answer_to_an_earlier_question_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hot, state = Hot(), HotState()
    with monkeypatch.context() as patch:
        patch.setattr(hot_state, "TIMEOUT_S", 0.0)
        with pytest.raises(UnavailableError):
            await state.popped(hot.link)
    asking = asyncio.create_task(state.popped(hot.link))
    await asyncio.sleep(0)
    first, second = hot.asked
    assert first.number != second.number
    state.answered(answer(first.number, 1))
    await asyncio.sleep(0)
    assert not asking.done()
    state.answered(answer(second.number, 2))
    state.answered(answer(second.number, 3))
    assert await asking == popped(2)
    state.answered(answer(second.number, 4))
