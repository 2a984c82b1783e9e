"""Replica sets of one broker of ours and one of RocketMQ: either stands in for the other, and gives back.

The NameServer is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.acting_set import SLAVE_TIMEOUT_S, ActingSet, mixed_acting_set
from tests.interop.test_acting_master import GROUP, LEVEL_5_S, Consumer, send
from tests.waiting import wait_until
from thermocline.client import AdminClient
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.full]


@pytest.fixture(params=["ASYNC_MASTER", "SLAVE"])
def acted(request: pytest.FixtureRequest, official_software: OfficialSoftware, tmp_path: Path) -> Iterator[ActingSet]:
    """The parameter is the role of the official broker."""
    with mixed_acting_set(tmp_path, official_software, official_role=request.param) as found:
        yield found


def test_either_stands_in_for_the_other(acted: ActingSet) -> None:
    namesrv = acted.namesrv
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_group(GROUP)
    with Consumer(namesrv) as consumer:
        send(namesrv, b"before")
        consumer.wait_for(b"before")
        wait_until(
            lambda: acted.committed(acted.slave, GROUP).get(0) == 1,
            what="the slave has the offset",
            timeout_s=SLAVE_TIMEOUT_S,
        )
        send(namesrv, b"last", queue_id=1)
        send(namesrv, b"delayed", delay_level=LEVEL_5_S)
        acted.wait_followed()
        acted.master.kill()
        acted.wait_acting()
        consumer.wait_for(b"last", b"delayed")
        wait_until(
            lambda: acted.committed(acted.slave, GROUP) == {0: 1, 1: 1}, what="the group has committed at the slave"
        )
        acted.master.start()
        acted.wait_followed()
        assert acted.committed(acted.master, GROUP) == {0: 1, 1: 1}
        send(namesrv, b"after")
        send(namesrv, b"delayed after", delay_level=1)
        consumer.wait_for(b"after", b"delayed after")
        assert sorted(consumer.bodies) == sorted(set(consumer.bodies)), "nothing came twice"
