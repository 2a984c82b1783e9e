"""Log: the commit log, how it is written, flushed and scanned."""

from thermocline.store.log.commit_log import CommitLog
from thermocline.store.log.flush_service import FlushCallback, FlushGate, run_in_executor
from thermocline.store.log.log_columns import read_columns
from thermocline.store.log.log_scan import LogScan, RecordScan, ScannedRecord, looks_torn
from thermocline.store.log.message_draft import GetResult, GetStatus, MessageDraft, PutResult, PutStatus, TimeBoundary
from thermocline.store.log.stored_gate import TOO_FEW_IN_SYNC, StoredGate

__all__ = [
    "TOO_FEW_IN_SYNC",
    "CommitLog",
    "FlushCallback",
    "FlushGate",
    "GetResult",
    "GetStatus",
    "LogScan",
    "MessageDraft",
    "PutResult",
    "PutStatus",
    "RecordScan",
    "ScannedRecord",
    "StoredGate",
    "TimeBoundary",
    "looks_torn",
    "read_columns",
    "run_in_executor",
]
