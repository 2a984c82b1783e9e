"""Log: the commit log, how it is written, flushed and scanned."""

from thermocline.store.log.commit_log import CommitLog
from thermocline.store.log.flush_service import FlushGate, run_in_executor
from thermocline.store.log.log_columns import read_columns
from thermocline.store.log.log_scan import LogScan, ScannedRecord
from thermocline.store.log.message_draft import GetResult, GetStatus, MessageDraft, PutResult, PutStatus, TimeBoundary

__all__ = [
    "CommitLog",
    "FlushGate",
    "GetResult",
    "GetStatus",
    "LogScan",
    "MessageDraft",
    "PutResult",
    "PutStatus",
    "ScannedRecord",
    "TimeBoundary",
    "read_columns",
    "run_in_executor",
]
