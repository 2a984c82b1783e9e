"""Links: the sockets of replication, on the event loop of the process that owns the log."""

from thermocline.replication.links.master_port import MasterPort, SlaveState
from thermocline.replication.links.slave_link import SlaveLink

__all__ = ["MasterPort", "SlaveLink", "SlaveState"]
