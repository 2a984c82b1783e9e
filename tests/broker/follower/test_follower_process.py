"""What a follower process reports of a ledger, over a real bucket."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec

from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from tests.tiered.sealing.test_seal_backlog import LocalStore
from thermocline.broker.follower.follower_process import FollowerRole
from thermocline.broker.follower.slave_process import SlaveRole
from thermocline.broker.helpers import CatalogTable, FollowedTopics, HelperLink, HelperRequestCode, TierReportReply
from thermocline.remoting.command import RemotingCommand
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.ledger import open_catalog
from thermocline.tiered.reading import ColdReader
from thermocline.tiered.sealing.seal_backlog import SealPolicy
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore, Verb

NO_READS = cast("ColdReader", None)


class Link:
    """The hot process's end."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(tier=TierConfig())
        self.topics: list[str] = []
        self.ends: dict[str, int] = {}

    def tell(self, code: HelperRequestCode, body: msgspec.Struct) -> None:
        if isinstance(body, FollowedTopics):
            self.topics += [each.topic for each in body.topics]
        else:
            assert isinstance(body, CatalogTable)
            self.ends |= {each.topic: each.end_offset for each in body.ranges}


async def damaged_state() -> MemoryObjectStore:
    """A bucket with history, whose two state snapshots cannot be read."""
    bucket = MemoryObjectStore()
    await commit_segment(await open_writer(bucket), topic="orders", count=7)
    for sequence in (1, 2):
        await bucket.put(KEYS.state(epoch=1, sequence=sequence), b"{}")
    return bucket


async def test_history_is_served_without_a_state_that_can_be_read() -> None:
    """How topics are set up is all that a read-only broker takes from it."""
    bucket, link, role = await damaged_state(), Link(), FollowerRole()
    assert await role._catch_up(cast("HelperLink", link), bucket, KEYS, NO_READS)
    assert (link.topics, link.ends) == (["orders"], {"orders": 7})


async def test_a_report_has_the_version_that_is_read() -> None:
    bucket, role = await damaged_state(), FollowerRole()

    def version() -> int:
        answer = role._report(RemotingCommand.request(HelperRequestCode.TIER_REPORT))
        return msgspec.msgpack.decode(answer.body, type=TierReportReply).version

    assert version() == -1, "nothing is read yet"
    assert await role._catch_up(cast("HelperLink", Link()), bucket, KEYS, NO_READS)
    assert version() == (await open_catalog(bucket, KEYS)).version > 0


async def test_a_slave_reads_no_state(tmp_path: Path) -> None:
    """It has its topics from its master: damage in the state must not keep it from its history, and from deleting local
    files that are committed."""
    bucket, link, role = MeteringObjectStore(await damaged_state()), Link(), SlaveRole()
    role._backlog, role._master_uuid = LocalStore(tmp_path).backlog(SealPolicy()), "store-1"
    assert await role._catch_up(cast("HelperLink", link), bucket, KEYS, NO_READS)
    assert link.ends == {"orders": 7}
    assert not bucket.counters.requests[Verb.LIST]
