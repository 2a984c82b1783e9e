"""Thermocline's history in PySpark: `spark.read.format("thermocline")`, straight from the bucket.

Importing this package imports neither pyspark nor pyarrow; the public names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.spark.access.hadoop_options import configure, read_options
    from thermocline.spark.decoding.arrow_decoder import ArrowDecoder, RowSelection
    from thermocline.spark.jobs.chunked_read import QueueEnd
    from thermocline.spark.jobs.compare import Comparison, Side, compare
    from thermocline.spark.jobs.counts import CountReport, counts
    from thermocline.spark.jobs.key_history import KeyHistory, key_history
    from thermocline.spark.jobs.lag import LagReport, QueueLag, lag
    from thermocline.spark.jobs.replay import CatchUpReport, catch_up
    from thermocline.spark.jobs.republish import RepublishReport, republish
    from thermocline.spark.session import local_session

__all__ = [
    "ArrowDecoder",
    "CatchUpReport",
    "Comparison",
    "CountReport",
    "KeyHistory",
    "LagReport",
    "QueueEnd",
    "QueueLag",
    "RepublishReport",
    "RowSelection",
    "Side",
    "catch_up",
    "compare",
    "configure",
    "counts",
    "key_history",
    "lag",
    "local_session",
    "read_options",
    "republish",
]

_MODULES = {
    "ArrowDecoder": "decoding.arrow_decoder",
    "RowSelection": "decoding.arrow_decoder",
    "configure": "access.hadoop_options",
    "read_options": "access.hadoop_options",
    "CatchUpReport": "jobs.replay",
    "QueueEnd": "jobs.chunked_read",
    "catch_up": "jobs.replay",
    "local_session": "session",
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
