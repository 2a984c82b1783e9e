"""State files: JSON files written durably by one thread, and their version counters."""

from thermocline.broker.state_files.config_persister import ConfigPersister, load_file
from thermocline.broker.state_files.log_first import log_is_durable
from thermocline.broker.state_files.version_counter import VersionCounter

__all__ = ["ConfigPersister", "VersionCounter", "load_file", "log_is_durable"]
