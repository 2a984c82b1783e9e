"""Links: the sockets of replication, on the event loop of the process that owns the log."""

from thermocline.replication.links.master_port import MasterPort, SlaveState
from thermocline.replication.links.slave_books import ControlledBook, SlaveBook
from thermocline.replication.links.slave_link import ControlledSlave, SlaveLink

__all__ = ["ControlledBook", "ControlledSlave", "MasterPort", "SlaveBook", "SlaveLink", "SlaveState"]
