"""Process: event loop, memory, paths and log format of a broker's processes."""

from thermocline.broker.process.advertised_address import advertised_host
from thermocline.broker.process.build_id import current_build_id
from thermocline.broker.process.event_loop import run
from thermocline.broker.process.freed_memory import give_memory_back
from thermocline.broker.process.huge_pages import advise_heap
from thermocline.broker.process.log_format import LEVELS, configure_logging
from thermocline.broker.process.loop_turns import LoopTurns, job_of
from thermocline.broker.process.machine_memory import total_memory_bytes
from thermocline.broker.process.runtime_paths import runtime_folder, socket_path

__all__ = [
    "LEVELS",
    "LoopTurns",
    "advertised_host",
    "advise_heap",
    "configure_logging",
    "current_build_id",
    "give_memory_back",
    "job_of",
    "run",
    "runtime_folder",
    "socket_path",
    "total_memory_bytes",
]
