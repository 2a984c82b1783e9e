"""Replication: one broker's commit log copied to others, in RocketMQ's protocol; no socket here, see links/."""

from thermocline.replication.confirmations import Confirmations
from thermocline.replication.log_copy import LogCopy
from thermocline.replication.master_session import MasterSession
from thermocline.replication.plain_codec import PlainCodec, TransferCodec
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.slave_session import SlaveSession

__all__ = [
    "Confirmations",
    "LogCopy",
    "MasterSession",
    "PlainCodec",
    "ReplicationSettings",
    "SlaveSession",
    "TransferCodec",
]
