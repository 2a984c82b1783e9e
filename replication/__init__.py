"""Replication: one broker's commit log copied to others, in RocketMQ's protocol; no socket here, see links/."""

from thermocline.replication.byte_rate import ByteRate
from thermocline.replication.confirmations import Confirmations
from thermocline.replication.log_copy import COPY_REFUSAL, LogCopy
from thermocline.replication.master_session import MasterSession, SourceLog, Transfer
from thermocline.replication.plain_codec import PlainCodec, TransferCodec, TransferHead
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.slave_session import SlaveSession

__all__ = [
    "COPY_REFUSAL",
    "ByteRate",
    "Confirmations",
    "LogCopy",
    "MasterSession",
    "PlainCodec",
    "ReplicationSettings",
    "SlaveSession",
    "SourceLog",
    "Transfer",
    "TransferCodec",
    "TransferHead",
]
