"""The blocking and the asyncio half of each client have the same names, options and documentation."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import thermocline
from thermocline import client
from thermocline.client import (
    AdminClient,
    AsyncAdminClient,
    AsyncPopConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
)

PAIRS = [
    (Producer, AsyncProducer),
    (TransactionProducer, AsyncTransactionProducer),
    (PushConsumer, AsyncPushConsumer),
    (PullConsumer, AsyncPullConsumer),
    (PopConsumer, AsyncPopConsumer),
    (AdminClient, AsyncAdminClient),
]
# Seams between the halves and their parts, not for users.
INNER = {
    "start_send",
    "set_listener",
    "start_with",
    "consumer_data",
    "answer",
    "close_after",
    "queues",
    "take_back",
    "take_up",
    "give_up",
    "subscription_of",
    "rebalance_soon",
    "running_info",
    "watched_topics",
    "set_transaction_listener",
    "start_checking_with",
    "send_half",
    "end_transaction",
}


def public_names(cls: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")} - INNER


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda cls: cls.__name__)
def test_halves_share_names(blocking: type, asynchronous: type) -> None:
    assert public_names(blocking) == public_names(asynchronous)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda cls: cls.__name__)
def test_halves_share_options_and_take_them_by_keyword_only(blocking: type, asynchronous: type) -> None:
    signature = inspect.signature(blocking)
    assert signature.parameters == inspect.signature(asynchronous).parameters
    assert {one.kind for one in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda cls: cls.__name__)
def test_halves_share_parameters(blocking: type, asynchronous: type) -> None:
    for name in public_names(blocking):
        one, other = getattr(blocking, name), getattr(asynchronous, name)
        if inspect.isfunction(one) and inspect.isfunction(other):
            mine, theirs = inspect.signature(one).parameters, inspect.signature(other).parameters
            assert list(mine) == list(theirs), name
            assert [p.default for p in mine.values()] == [p.default for p in theirs.values()], name
            assert not inspect.iscoroutinefunction(one), name


def test_the_package_gives_every_public_name() -> None:
    assert thermocline.__all__ == client.__all__
    for name in thermocline.__all__:
        assert getattr(thermocline, name) is getattr(client, name)
        assert name in dir(thermocline)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = thermocline.Nonsense  # type: ignore[attr-defined]


def test_importing_the_package_loads_next_to_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import thermocline; "
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('thermocline')), "
        "'asyncio' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['thermocline'] False"
