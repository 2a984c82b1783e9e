"""Resignation: who may be elected in the place of a master that cannot serve."""

from __future__ import annotations

from thermocline.broker.controlled.questions import Answer, Ask, MasterNews
from thermocline.broker.controlled.resignation import KnownSets, Resignation
from thermocline.remoting.response_code import ResponseCode


def news(members: set[int], *, set_epoch: int, master_id: int | None = 1, master_epoch: int = 1) -> MasterNews:
    """A controller's record of the set."""
    return MasterNews(
        master_id=master_id,
        master_address="127.0.0.1:1",
        master_epoch=master_epoch,
        set_epoch=set_epoch,
        members=frozenset(members),
    )


def test_heirs_are_the_others_of_the_set_right_before() -> None:
    sets = KnownSets()
    sets.heard(news({1, 2}, set_epoch=2))
    sets.heard(news({1, 2, 3}, set_epoch=3))
    sets.heard(news({1, 2}, set_epoch=2))  # overtaken
    sets.heard(news(set(), set_epoch=3, master_id=None, master_epoch=2))  # a set without a master stays as it is
    elected = news({2}, set_epoch=4, master_id=2, master_epoch=3)
    sets.heard(elected)
    sets.heard(elected)
    assert sets.heirs(elected) == {1, 3}


def test_a_set_that_may_have_changed_since_gives_no_heirs() -> None:
    sets = KnownSets()
    sets.heard(news({1, 2, 3}, set_epoch=3))
    elected = news({2}, set_epoch=5, master_id=2, master_epoch=2)
    sets.heard(elected)
    assert sets.heirs(elected) == frozenset()
    assert KnownSets().heirs(elected) == frozenset()


def test_sets_of_before_the_epochs_began_anew_give_no_heirs() -> None:
    sets = KnownSets()
    sets.heard(news({1, 2, 3}, set_epoch=4, master_epoch=5))
    sets.heard(news({1}, set_epoch=1, master_epoch=1))
    elected = news({2}, set_epoch=5, master_id=2, master_epoch=6)
    sets.heard(elected)
    assert sets.heirs(elected) == frozenset()


def test_one_heir_after_the_other_and_those_that_are_dead_stay_out() -> None:
    resignation = Resignation(2, master_epoch=7, set_epoch=4, members=frozenset({2}), heirs=frozenset({1, 3, 4}))
    asked = []
    for answer in (
        Answer(code=ResponseCode.CONTROLLER_BROKER_NOT_ALIVE),
        Answer(news=news({2, 3}, set_epoch=5)),
        Answer(news=news({2, 3, 4}, set_epoch=6)),
    ):
        question = resignation.question()
        assert (question.ask, question.broker_id, question.master_epoch) == (Ask.ALTER, 2, 7)
        asked.append((set(question.members), question.set_epoch))
        resignation.answered(answer)
    assert asked == [({1, 2}, 4), ({2, 3}, 4), ({2, 3, 4}, 5)]
    assert resignation.is_over


def test_another_master_or_another_set_ends_it() -> None:
    for code in (
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    ):
        resignation = Resignation(2, master_epoch=7, set_epoch=4, members=frozenset({2}), heirs=frozenset({1, 3}))
        resignation.answered(Answer(code=code))
        assert resignation.is_over
    assert Resignation(2, master_epoch=7, set_epoch=4, members=frozenset({2}), heirs=frozenset()).is_over
