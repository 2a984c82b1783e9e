"""Replication: one broker's commit log copied to others, in RocketMQ's protocol; no socket here, see links/."""

from thermocline.replication.auto_switch_codec import SlaveHandshake
from thermocline.replication.auto_switch_master import AutoSwitchMasterSession
from thermocline.replication.auto_switch_slave import AutoSwitchSlaveSession
from thermocline.replication.confirmations import Confirmations
from thermocline.replication.epoch_file import EpochFile, StaleEpochError
from thermocline.replication.epoch_start import EpochStart
from thermocline.replication.epochs import Alignment, EpochEntry, Epochs
from thermocline.replication.hand_over import PAUSE_MS_MAX, HandOver
from thermocline.replication.log_copy import LogCopy
from thermocline.replication.master_session import MasterSession
from thermocline.replication.plain_codec import PlainCodec
from thermocline.replication.replica_role import ReplicaRole, RoleChanger
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.slave_session import SlaveSession
from thermocline.replication.sync_state_set import Members, SyncStateSet

__all__ = [
    "PAUSE_MS_MAX",
    "Alignment",
    "AutoSwitchMasterSession",
    "AutoSwitchSlaveSession",
    "Confirmations",
    "EpochEntry",
    "EpochFile",
    "EpochStart",
    "Epochs",
    "HandOver",
    "LogCopy",
    "MasterSession",
    "Members",
    "PlainCodec",
    "ReplicaRole",
    "ReplicationSettings",
    "RoleChanger",
    "SlaveHandshake",
    "SlaveSession",
    "StaleEpochError",
    "SyncStateSet",
]
