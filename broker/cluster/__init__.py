"""Cluster: registration at NameServers, and requests to other brokers."""

from thermocline.broker.cluster.cluster_queues import ClusterQueues
from thermocline.broker.cluster.member_watch import MemberWatch, StandIn
from thermocline.broker.cluster.name_server_watch import SETTINGS
from thermocline.broker.cluster.peer_brokers import PeerBrokers
from thermocline.broker.cluster.peer_messages import read_peer_message
from thermocline.broker.cluster.registration import Registration

__all__ = [
    "SETTINGS",
    "ClusterQueues",
    "MemberWatch",
    "PeerBrokers",
    "Registration",
    "StandIn",
    "read_peer_message",
]
