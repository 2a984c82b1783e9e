"""State: the tables of replica sets and of live brokers, and the decisions made from them; no clock, no I/O."""

from thermocline.controller.state.decisions import BY_CONTROLLER, Decision, Decisions
from thermocline.controller.state.events import Event, Proposal
from thermocline.controller.state.live_table import BrokerKey, LiveBroker, Liveness, LiveTable
from thermocline.controller.state.replica_sets import Members, Replica, ReplicaSets, Sync

__all__ = [
    "BY_CONTROLLER",
    "BrokerKey",
    "Decision",
    "Decisions",
    "Event",
    "LiveBroker",
    "LiveTable",
    "Liveness",
    "Members",
    "Proposal",
    "Replica",
    "ReplicaSets",
    "Sync",
]
