"""A slave's enrolment: when it is written, and what it takes over from its master."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tests.simulated_disk import SimulatedDisk
from thermocline.broker.replicas.enrolment_follower import EnrolmentFollower
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.remoting.private_requests import ReplicaSourceAnswer
from thermocline.store.state.enrolment import load_enrolment

PATH = "/store/enrolment.json"


class Master:
    """Answers as it is set."""

    def __init__(self) -> None:
        self.answer: ReplicaSourceAnswer | None = None

    async def source(self) -> ReplicaSourceAnswer | None:
        return self.answer


def follower_on(disk: SimulatedDisk, log_end: Callable[[], int] = lambda: 1_000) -> EnrolmentFollower:
    return EnrolmentFollower(disk, PATH, store_id="slave", log_end=log_end)


async def test_it_is_written_when_the_master_has_accepted_the_log() -> None:
    disk, master = SimulatedDisk(), Master()
    disk.make_directory("/store")
    follower = follower_on(disk)
    enrolled: list[str] = []
    is_following = False
    follower.is_following = lambda: is_following
    follower.on_enrolled = enrolled.append
    asked = cast("MasterMetadata", master)
    assert not await follower.follow(asked), "a master of RocketMQ has no ledger"
    assert follower.held_offset == 0
    assert follower.is_current
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=70)
    assert not await follower.follow(asked)
    assert (follower.held_offset, follower.master_store_id) == (70, "")
    assert not follower.is_current, "its ledger may not be taken over"
    is_following = True
    assert await follower.follow(asked)
    assert follower.is_current
    assert not await follower.follow(asked), "nothing is new"
    enrolment = load_enrolment(disk, PATH, store_id="slave")
    assert enrolment is not None
    assert enrolment.master_store_id == follower_on(disk).master_store_id == "first"
    assert not enrolment.has_ledger
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=70, has_ledger=True)
    assert await follower.follow(asked)
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=70)
    assert not await follower.follow(asked), "a master that was started again, and whose bucket is away"
    enrolment = load_enrolment(disk, PATH, store_id="slave")
    assert enrolment is not None
    assert enrolment.has_ledger
    master.answer = ReplicaSourceAnswer(store_uuid="", held_offset=80)
    assert not await follower.follow(asked), "a master without a cold tier"
    master.answer = ReplicaSourceAnswer(store_uuid="second", held_offset=90)
    assert await follower.follow(asked)
    assert enrolled == ["first", "second"]
    assert follower_on(disk).master_store_id == "second"


async def test_the_log_is_kept_until_it_has_what_was_put_in_the_place_of_what_waited() -> None:
    """A delayed message that the master has delivered is nowhere here before its copy has come."""
    master, log_end = Master(), 100
    follower = follower_on(SimulatedDisk(), lambda: log_end)
    asked = cast("MasterMetadata", master)
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=70, log_end=100)
    await follower.follow(asked)
    assert follower.held_offset == 70
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=120, log_end=120)
    await follower.follow(asked)
    assert follower.held_offset == 70
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=140, log_end=140)
    await follower.follow(asked)
    log_end = 120
    assert follower.held_offset == 120, "it need not come as far as a master that goes on"
    await follower.follow(asked)
    assert follower.held_offset == 120
    master.answer = ReplicaSourceAnswer(store_uuid="first", held_offset=30, log_end=140)
    await follower.follow(asked)
    log_end = 140
    assert follower.held_offset == 30, "more waits than the master knew"
