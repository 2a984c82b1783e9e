"""What tasks report and the driver sums up; in Spark itself: tests/spark/test_where.py."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from thermocline.spark.metrics.collector import TaskMetrics
from thermocline.spark.metrics.sending import send_report, task_reported
from thermocline.spark.metrics.task_counts import COUNT_NAMES, TaskCounts

pytest.importorskip("pyspark")


@pytest.fixture
def metrics() -> Iterator[TaskMetrics]:
    collector = TaskMetrics(host="127.0.0.1", bind_address="127.0.0.1")
    yield collector
    collector.close()


def task_of(metrics: TaskMetrics, *, rows: int) -> None:
    with task_reported(metrics.address, lambda: TaskCounts(rows=rows, gets=1), engine="direct"):
        pass


def test_tasks_and_plans_are_summed(metrics: TaskMetrics) -> None:
    task_of(metrics, rows=3)
    task_of(metrics, rows=4)
    plan = {"kind": "plan", "engine": "direct", "segments": 9, "segments_pruned": 7, "index_gets": 2, "tasks": 2}
    assert send_report(metrics.address, plan)
    report = metrics.report()
    assert (report.task_count, report.failed_count, report.total.rows, report.total.gets) == (2, 0, 7, 2)
    assert (report.segments, report.segments_pruned) == (9, 7)
    assert [task.counts.rows for task in report.tasks] == [3, 4]
    assert "rows" in str(report)


def test_attempts_that_fail_are_counted_apart(metrics: TaskMetrics) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        task_reported(metrics.address, lambda: TaskCounts(rows=5), engine="direct"),
    ):
        raise ZeroDivisionError
    task_of(metrics, rows=5)
    report = metrics.report()
    assert (report.task_count, report.failed_count, report.total.rows) == (1, 1, 5)
    assert [task.outcome for task in report.tasks] == ["failed", "done"]


def test_a_driver_that_is_gone_costs_no_task() -> None:
    collector = TaskMetrics(host="127.0.0.1", bind_address="127.0.0.1")
    collector.close()
    task_of(collector, rows=1)
    assert not send_report(collector.address, {"kind": "plan"})
    assert collector.report().task_count == 0


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\n", b"[]\n", b"{}\n", b"\xff\n", b'{"token": "guess"}\n', b"x" * 100_000),
        *('{"token": "é"}\n'.encode(), b'{"token": "\\ud800"}\n', b"[" * 50_000 + b"\n"),
    ],
    ids=lambda line: repr(line[:20]),
)
def test_strangers_are_not_counted(metrics: TaskMetrics, line: bytes) -> None:
    parts = urlsplit(metrics.address)
    with socket.create_connection((str(parts.hostname), parts.port or 0)) as stranger:
        stranger.sendall(line)
        stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # it was shut in the middle of our line
            assert stranger.recv(1) == b""
    task_of(metrics, rows=1)
    assert metrics.report().task_count == 1


def _is_closed(stranger: socket.socket) -> bool:
    """Send another byte, and wait a moment for an answer."""
    try:
        stranger.sendall(b"x")
        return stranger.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_stranger_whose_line_never_ends_is_cut_off(metrics: TaskMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte by byte, each in time, it kept the reports of all tasks waiting."""
    monkeypatch.setattr("thermocline.spark.metrics.collector.REPORT_TIMEOUT_S", 0.2)
    parts = urlsplit(metrics.address)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=0.01) as stranger:
        is_cut_off = any(_is_closed(stranger) for _ in range(500))
    assert is_cut_off
    task_of(metrics, rows=1)
    assert metrics.report().task_count == 1


def test_a_report_with_the_token_but_without_sense_is_not_counted(metrics: TaskMetrics) -> None:
    token = urlsplit(metrics.address).path[1:]
    whole = {"token": token, "kind": "task", "engine": "direct", "outcome": "done", "stage": 1, "partition": 0}
    for change in ({"outcome": "splendid"}, {"rows": -1}, {"gets": "many"}, {"attempt": None}):
        report = whole | {"attempt": 0} | TaskCounts().as_dict() | change
        with pytest.raises(ValueError, match=r"."):
            metrics.add(json.loads(json.dumps(report)))
    assert metrics.report().task_count == 0


def test_counts_add_up_by_name() -> None:
    ones = TaskCounts.from_dict(dict.fromkeys(COUNT_NAMES, 1))
    total = TaskCounts()
    for _ in range(2):
        total.add(ones)
    assert total.as_dict() == dict.fromkeys(COUNT_NAMES, 2)
    assert ones.messages_left_out == 2
