"""task_metrics: what the reads of a block cost, gathered on the driver from their tasks.

    with thermocline.spark.task_metrics(spark) as metrics:
        df = thermocline.spark.configure(spark, url).option("topic", "orders").load(url)
        df.count()
    print(metrics.report())

Reads that are made within the block through `configure`, `read_options`, `read_cold` or `catch_up` take part by
themselves, any other by `.options(**metrics.options)`. Python data sources have no accumulators, and their planner and
workers see nothing of the session but options; so the driver listens on a port of its own, and its address with a token
goes along as an option. Reports are small and bounded in number; beyond TASKS_KEPT_MAX only their sum is kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from thermocline.spark.metrics.report import MetricsReport, PlanReport, TaskReport
from thermocline.spark.metrics.sending import RECEIVED
from thermocline.spark.metrics.task_counts import TaskCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

OPTION = "metrics"
REPORT_BYTES_MAX = 64 << 10
REPORT_TIMEOUT_S = 2.0
ACCEPT_TIMEOUT_S = 0.5
TASKS_KEPT_MAX = 10_000

_active: list[TaskMetrics] = []


class TaskMetrics:
    """Listens until `close`; `report` may be asked at any time, also afterwards. Any thread may use it."""

    def __init__(self, *, host: str, bind_address: str) -> None:
        family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
        self._token = secrets.token_urlsafe(16)
        self._listener = socket.create_server((bind_address, 0), family=family, backlog=128)
        self._listener.settimeout(ACCEPT_TIMEOUT_S)
        name = f"[{host}]" if ":" in host else host
        self.address = f"tcp://{name}:{self._listener.getsockname()[1]}/{self._token}"
        self._lock = threading.Lock()
        self._plans: list[PlanReport] = []
        self._tasks: list[TaskReport] = []
        self._task_count = 0
        self._failed_count = 0
        self._total = TaskCounts()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="task-metrics", daemon=True)
        self._thread.start()

    @property
    def options(self) -> dict[str, str]:
        """Options by which a read takes part."""
        return {OPTION: self.address}

    def report(self) -> MetricsReport:
        """What has been reported so far; the tasks of an action that has returned are in it."""
        with self._lock:
            total = TaskCounts()
            total.add(self._total)
            return MetricsReport(
                task_count=self._task_count,
                failed_count=self._failed_count,
                total=total,
                tasks=tuple(self._tasks),
                plans=tuple(self._plans),
            )

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._closing.set()
        self._thread.join()
        self._listener.close()

    def add(self, report: Mapping[str, object]) -> None:
        """Take in one report; ValueError for what is none."""
        with self._lock:
            if report.get("kind") == "plan":
                if len(self._plans) < TASKS_KEPT_MAX:
                    self._plans.append(PlanReport.from_dict(report))
                return
            if report.get("kind") == "loss":
                self._total.add(TaskCounts.from_dict(TaskCounts().as_dict() | dict(report)))
                return
            task = TaskReport.from_dict(report)
            if len(self._tasks) < TASKS_KEPT_MAX:
                self._tasks.append(task)
            if task.outcome == "failed":
                self._failed_count += 1
                return
            self._task_count += 1
            self._total.add(task.counts)

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            with connection:
                try:
                    self._receive(connection)
                except (OSError, ValueError, RecursionError) as error:  # the last of deeply nested JSON
                    logger.debug("not a report of a task: %s", error)

    def _receive(self, connection: socket.socket) -> None:
        deadline_s = time.monotonic() + REPORT_TIMEOUT_S  # for the whole line: reports of tasks wait behind it
        line = bytearray()
        while not line.endswith(b"\n"):
            connection.settimeout(max(deadline_s - time.monotonic(), 0.001))
            data = connection.recv(REPORT_BYTES_MAX)
            line += data
            if not data or len(line) > REPORT_BYTES_MAX:
                raise ValueError("no whole line")
        report = json.loads(line)
        token = str(report.get("token")) if isinstance(report, dict) else ""
        if not secrets.compare_digest(token.encode(errors="surrogatepass"), self._token.encode()):
            raise ValueError("a stranger")
        self.add(report)
        connection.sendall(RECEIVED)


@contextlib.contextmanager
def task_metrics(spark: SparkSession) -> Iterator[TaskMetrics]:
    """Gather what reads do within the block; messages that they left out are named in a warning when it ends.

    Classic sessions only: the address is that of the driver (`spark.driver.host`, `spark.driver.bindAddress`).
    """
    settings = spark.sparkContext.getConf()
    host = str(settings.get("spark.driver.host", "127.0.0.1"))
    metrics = TaskMetrics(host=host, bind_address=str(settings.get("spark.driver.bindAddress", host)))
    _active.append(metrics)
    try:
        yield metrics
    finally:
        _active.remove(metrics)
        metrics.close()
        report = metrics.report()
        total = report.total
        logger.info(
            "reads ended tasks=%d failed_attempts=%d rows=%d gets=%d retries=%d fetched_bytes=%d decoded_bytes=%d",
            *(report.task_count, report.failed_count, total.rows, total.gets, total.retries),
            *(total.fetched_bytes, total.decoded_bytes),
        )
        if total.messages_left_out:
            logger.warning(
                "messages were left out damaged=%d in_frames=%d gone=%d in_objects=%d",
                *(total.messages_skipped, total.frames_skipped, total.messages_missing, total.objects_missing),
            )


def active_options() -> dict[str, str]:
    """Options by which a read takes part in the innermost block that is open; none outside."""
    return _active[-1].options if _active else {}
