"""Which replica is elected, rule by rule."""

from __future__ import annotations

import pytest

from thermocline.controller.state.election import elect
from thermocline.controller.state.live_table import PRIORITY_DEFAULT, LiveBroker

Log = tuple[int, int, int]
"""Epoch, offset, priority."""


def live(brokers: dict[int, Log], broker_id: int) -> LiveBroker | None:
    if broker_id not in brokers:
        return None
    epoch, offset, priority = brokers[broker_id]
    return LiveBroker(
        address="",
        seen_ms=0,
        timeout_ms=1,
        epoch=epoch,
        max_offset=offset,
        confirm_offset=0,
        priority=priority,
        owner=None,
    )


EQUAL: Log = (1, 10, PRIORITY_DEFAULT)


@pytest.mark.parametrize(
    ("brokers", "in_sync", "old_master", "designated", "elected"),
    [
        ({1: EQUAL, 2: (9, 99, 0)}, [1, 2], 1, None, 1),  # the old master stays
        ({1: EQUAL, 2: EQUAL}, [1, 2], 1, 2, 2),  # unless another one is designated
        ({1: EQUAL, 2: EQUAL}, [1, 2], 1, 3, None),  # and no other one instead of it
        ({1: EQUAL, 2: EQUAL}, [1], 1, 2, None),  # which has to be in the set
        ({2: (2, 5, 9), 3: (1, 99, 0)}, [1, 2, 3], 1, None, 2),  # epoch before offset
        ({2: (1, 5, 0), 3: (1, 6, 9)}, [1, 2, 3], 1, None, 3),  # offset before priority
        ({2: (1, 5, 9), 3: (1, 5, 8)}, [1, 2, 3], 1, None, 3),  # the smaller priority
        ({2: EQUAL, 3: EQUAL}, [1, 2, 3], 1, None, 2),  # the smaller number
        ({2: (1, 0, 0), 3: (1, 3 << 40, 0)}, [1, 2, 3], 1, None, 3),  # offsets beyond 32 bits
        ({3: EQUAL}, [1, 2], 1, None, None),  # outside the set
        ({}, [1, 2], 1, None, None),
        ({2: EQUAL}, [2], None, None, 2),  # there was no master
    ],
)
def test_rules(
    brokers: dict[int, Log], in_sync: list[int], old_master: int | None, designated: int | None, elected: int | None
) -> None:
    assert (
        elect(
            lambda broker_id: live(brokers, broker_id),
            in_sync=in_sync,
            others=None,
            old_master=old_master,
            designated=designated,
        )
        == elected
    )


def test_an_unclean_election_prefers_the_set() -> None:
    brokers = {2: EQUAL, 3: (9, 99, 0)}

    def among(in_sync: list[int]) -> int | None:
        return elect(
            lambda broker_id: live(brokers, broker_id),
            in_sync=in_sync,
            others=[1, 2, 3],
            old_master=1,
            designated=None,
        )

    assert among([1, 2]) == 2
    assert among([1]) == 3
