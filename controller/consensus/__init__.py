"""Consensus: the log that the controllers of a group agree on, by PySyncObj's Raft on files and connections of ours."""

from thermocline.controller.consensus.consensus_node import ConsensusNode, NotLeaderError
from thermocline.controller.consensus.peers import Peers, parse_peers

__all__ = ["ConsensusNode", "NotLeaderError", "Peers", "parse_peers"]
