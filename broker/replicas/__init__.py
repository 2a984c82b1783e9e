"""Replicas: a slave's tables that follow its master's, and its enrolment."""

from thermocline.broker.replicas.enrolment_follower import EnrolmentFollower
from thermocline.broker.replicas.followed_table import FollowedTable
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.broker.replicas.metadata_follower import MetadataFollower
from thermocline.broker.replicas.slices import run_in_slices
from thermocline.broker.replicas.table_followers import (
    DelayFollower,
    GroupsFollower,
    OffsetsFollower,
    RequestModesFollower,
    TimerCheckpointFollower,
    TimerMetricsFollower,
    UsersFollower,
)
from thermocline.broker.replicas.topics_follower import TopicsFollower

__all__ = [
    "DelayFollower",
    "EnrolmentFollower",
    "FollowedTable",
    "GroupsFollower",
    "MasterMetadata",
    "MetadataFollower",
    "OffsetsFollower",
    "RequestModesFollower",
    "TimerCheckpointFollower",
    "TimerMetricsFollower",
    "TopicsFollower",
    "UsersFollower",
    "run_in_slices",
]
