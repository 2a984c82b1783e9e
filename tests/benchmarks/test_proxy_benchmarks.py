"""The load generator for gRPC, and the benchmarks of the proxy, on a small scale: real processes, right counts.

The proxies of these tests are merged: one start serves both programs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import proxy_compare
from benchmarks.grpc_load import RECEIVE, GrpcLoadShape, run_grpc_load
from benchmarks.proxy_clients import measure
from benchmarks.proxy_under_test import MERGED, ProxyUnderTest, start_proxy
from tests.fixtures_tools import have
from thermocline.client import AdminClient
from tooling.system_packages import find_c_compiler

CONNECTIONS, WINDOW = 2, 4
SHORT_POLLS = {"grpcClientConsumerMinLongPollingTimeoutMillis": "100"}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyUnderTest]:
    have(find_c_compiler)
    directory = tmp_path_factory.mktemp("proxy")
    with start_proxy(MERGED, directory, software=None, settings=SHORT_POLLS) as running:
        yield running


def test_what_is_sent_is_stored_and_what_is_received_is_acknowledged(proxy: ProxyUnderTest) -> None:
    shape = GrpcLoadShape(connections=CONNECTIONS, window=WINDOW)
    proxy.make_topic("Counted")
    proxy.make_group(shape.group)
    sent = run_grpc_load(shape, endpoint=proxy.endpoint, topic="Counted", seconds=0.5)
    assert sent.is_clean
    with AdminClient(namesrv=proxy.broker.namesrv) as admin:
        stored = sum(each.message_count for each in admin.topic_stats("Counted"))
    # Answers that came after the end are not counted.
    assert 0 < sent.messages <= stored <= sent.messages + CONNECTIONS * WINDOW

    shape = GrpcLoadShape(mode=RECEIVE, connections=CONNECTIONS, window=WINDOW, poll_s=1.0)
    received = run_grpc_load(shape, endpoint=proxy.endpoint, topic="Counted", seconds=4.0)
    assert received.is_clean
    assert received.received == stored
    again = run_grpc_load(shape, endpoint=proxy.endpoint, topic="Counted", seconds=0.5)
    assert (again.is_clean, again.received) == (True, 0)


def test_a_wrong_topic_is_counted_as_errors(proxy: ProxyUnderTest) -> None:
    wrong = run_grpc_load(
        GrpcLoadShape(connections=1, window=1), endpoint=proxy.endpoint, topic="NotThere", seconds=0.2
    )
    assert (wrong.messages, wrong.is_clean) == (0, False)
    assert wrong.codes.keys() == {"40402"}  # TOPIC_NOT_FOUND


def test_clients_that_wait_are_counted_and_stay(proxy: ProxyUnderTest) -> None:
    waiting = measure(proxy, clients=60, polls=20, seconds=7.0, poll_s=0.2)
    assert waiting.is_right
    assert waiting.result.open == 60
    assert waiting.result.heartbeats > 0
    assert waiting.result.empty >= 20  # each long poll ended once at least
    assert waiting.after_mb > waiting.before_mb


@pytest.mark.full
def test_the_comparison_measures_a_deployment(capsys: pytest.CaptureFixture[str]) -> None:
    have(find_c_compiler)
    assert proxy_compare.main(["--quick", "--only", MERGED]) == 0
    printed = capsys.readouterr().out
    assert all(shape in printed for shape in proxy_compare.SHAPES)
