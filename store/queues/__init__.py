"""Queues: the consume queues of all topics, their files and ends, and filtered reads."""

from thermocline.store.queues.consume_queue import FILLER, FILLER_SIZE_BYTES, UNIT, ConsumeQueue
from thermocline.store.queues.consume_queue_files import ConsumeQueueFiles, UnsyncedFiles
from thermocline.store.queues.consume_queue_table import NO_ROOM_FOR_UNITS, ConsumeQueueTable
from thermocline.store.queues.filtered_runs import FilteredRuns
from thermocline.store.queues.message_runs import RunLimits, read_runs
from thermocline.store.queues.queue_ends import QueueEnds, TopicEnds, encode_queue_ends, save_queue_ends
from thermocline.store.queues.queue_file_maker import QueueFileMaker

__all__ = [
    "FILLER",
    "FILLER_SIZE_BYTES",
    "NO_ROOM_FOR_UNITS",
    "UNIT",
    "ConsumeQueue",
    "ConsumeQueueFiles",
    "ConsumeQueueTable",
    "FilteredRuns",
    "QueueEnds",
    "QueueFileMaker",
    "RunLimits",
    "TopicEnds",
    "UnsyncedFiles",
    "encode_queue_ends",
    "read_runs",
    "save_queue_ends",
]
