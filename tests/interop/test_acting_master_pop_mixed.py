"""POP in a replica set of one broker of ours and one of RocketMQ, and with RocketMQ's broker as the other master.

The NameServer is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.acting_set import OTHER, SLAVE_TIMEOUT_S, ActingSet, mixed_acting_set
from tests.interop.test_acting_master import send
from tests.interop.test_acting_master_pop import GROUP, Popper
from tests.waiting import wait_until
from thermocline.client import AdminClient
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.full]

HELD_MS = 30_000
HELD_AT_SLAVE_MS = 15_000


@pytest.fixture(params=["ASYNC_MASTER", "SLAVE", OTHER])
def acted(request: pytest.FixtureRequest, official_software: OfficialSoftware, tmp_path: Path) -> Iterator[ActingSet]:
    """The parameter is the role of the official broker."""
    with mixed_acting_set(tmp_path, official_software, official_role=request.param) as found:
        yield found


def test_what_was_popped_at_either_broker_comes_back(acted: ActingSet) -> None:
    namesrv = acted.namesrv
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_group(GROUP)
    with Popper(namesrv) as popper:
        for body in (b"1 acked", b"1 held", b"2 acked", b"2 held"):
            send(namesrv, body)
        popper.ack(*popper.pop(b"1 acked"))
        popper.pop(b"1 held", invisible_ms=HELD_MS)
        acted.wait_followed()
        wait_until(
            lambda: acted.committed(acted.slave, GROUP).get(0) == 2,
            what="the slave has the offset",
            timeout_s=SLAVE_TIMEOUT_S,
        )
        acted.master.kill()
        acted.wait_acting()
        popper.ack(*popper.pop(b"2 acked"))
        popper.pop(b"2 held", invisible_ms=HELD_AT_SLAVE_MS)
        if popper.counts[b"2 held"] == 1:
            popper.pop(b"2 held")
        acted.master.start()
        acted.wait_followed()
        if popper.counts[b"1 held"] == 1:
            popper.pop(b"1 held")
        send(namesrv, b"3")
        popper.pop(b"3")
        assert popper.counts[b"1 acked"] == popper.counts[b"2 acked"] == 1
