"""Thermocline's history in PySpark: `spark.read.format("thermocline")`, straight from the bucket.

Importing this package imports neither pyspark nor pyarrow; the public names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.spark.access.hadoop_options import configure, read_options
    from thermocline.spark.bodies.dataframe_bodies import with_avro_body, with_json_body, with_protobuf_body
    from thermocline.spark.cold_table import read_cold
    from thermocline.spark.decoding.arrow_decoder import ArrowDecoder, RowSelection
    from thermocline.spark.handoff.hand_off import hand_off
    from thermocline.spark.handoff.receipt import Receipt, read_receipt
    from thermocline.spark.handoff.snapshot import ColdSnapshot, SnapshotQueue, open
    from thermocline.spark.jobs.compare import Comparison, Side, compare
    from thermocline.spark.jobs.counts import CountReport, counts
    from thermocline.spark.jobs.key_history import KeyHistory, key_history
    from thermocline.spark.jobs.lag import LagReport, QueueLag, lag
    from thermocline.spark.jobs.replay import CatchUpReport, catch_up
    from thermocline.spark.jobs.republish import RepublishReport, republish
    from thermocline.spark.metrics.collector import TaskMetrics, task_metrics
    from thermocline.spark.metrics.report import MetricsReport
    from thermocline.spark.session import local_session
    from thermocline.spark.stream_table import read_stream

__all__ = [
    "ArrowDecoder",
    "CatchUpReport",
    "ColdSnapshot",
    "Comparison",
    "CountReport",
    "KeyHistory",
    "LagReport",
    "MetricsReport",
    "QueueLag",
    "Receipt",
    "RepublishReport",
    "RowSelection",
    "Side",
    "SnapshotQueue",
    "TaskMetrics",
    "catch_up",
    "compare",
    "configure",
    "counts",
    "hand_off",
    "key_history",
    "lag",
    "local_session",
    "open",
    "read_cold",
    "read_options",
    "read_receipt",
    "read_stream",
    "republish",
    "task_metrics",
    "with_avro_body",
    "with_json_body",
    "with_protobuf_body",
]

_MODULES = {
    "ArrowDecoder": "decoding.arrow_decoder",
    "RowSelection": "decoding.arrow_decoder",
    "configure": "access.hadoop_options",
    "read_options": "access.hadoop_options",
    "read_cold": "cold_table",
    "read_stream": "stream_table",
    "CatchUpReport": "jobs.replay",
    "ColdSnapshot": "handoff.snapshot",
    "SnapshotQueue": "handoff.snapshot",
    "open": "handoff.snapshot",
    "Receipt": "handoff.receipt",
    "read_receipt": "handoff.receipt",
    "hand_off": "handoff.hand_off",
    "catch_up": "jobs.replay",
    "local_session": "session",
    "MetricsReport": "metrics.report",
    "TaskMetrics": "metrics.collector",
    "task_metrics": "metrics.collector",
    "with_avro_body": "bodies.dataframe_bodies",
    "with_json_body": "bodies.dataframe_bodies",
    "with_protobuf_body": "bodies.dataframe_bodies",
    "Comparison": "jobs.compare",
    "Side": "jobs.compare",
    "compare": "jobs.compare",
    "CountReport": "jobs.counts",
    "counts": "jobs.counts",
    "KeyHistory": "jobs.key_history",
    "key_history": "jobs.key_history",
    "LagReport": "jobs.lag",
    "QueueLag": "jobs.lag",
    "lag": "jobs.lag",
    "RepublishReport": "jobs.republish",
    "republish": "jobs.republish",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
