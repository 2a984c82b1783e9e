"""Go clients with TLS and access control: what they have of test_access_features.py. They have no POP.

TLS came after their last release, 2.1.2, so it is the client of the commit in `go/tls.mod`. It checks no certificate of
a server, and has none to show.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.interop import fixtures_go, test_go_client, test_go_consumption, test_go_transactions
from tests.interop.go_agent import GoAgent
from tests.interop.go_driver import GoCluster
from tests.interop.secured import Secured

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("secured")]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def go_cluster(secured: Secured, secured_go: GoAgent) -> Iterator[GoCluster]:
    with secured.admin() as admin:
        yield GoCluster(namesrv=secured.namesrv, agent=secured_go, admin=admin)


@pytest.fixture
def go_name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"AccessGo{next(_numbers)}x{request.node.originalname[5:35]}"


go = fixtures_go.go

test_sends = test_go_client.test_every_kind_of_send_arrives_exactly_once
test_pull = test_go_client.test_the_pull_consumer_reads_everything
test_pull_of_a_queue = test_go_client.test_a_queue_is_pulled_from_an_offset
test_traces = test_go_client.test_traces_are_found_by_message
test_request_and_reply = test_go_consumption.test_a_request_gets_its_reply
test_transactions = test_go_transactions.test_committed_messages_arrive_and_others_do_not
