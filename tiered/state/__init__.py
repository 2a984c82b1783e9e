"""State: what the bucket keeps of a broker besides messages, so that the bucket alone is enough for a recovery."""

from thermocline.tiered.state import snapshot
from thermocline.tiered.state.carried_state import CARRIED_BYTES_MAX, CarriedState, encode_carried
from thermocline.tiered.state.newest_state import find_last, find_newest, find_superseded, read_newest, with_carried
from thermocline.tiered.state.recovery_plan import RecoveryPlan, TopicPlan, first_place, plan_recovery
from thermocline.tiered.state.snapshot import (
    CONSUMER_OFFSETS,
    GROUPS,
    KEPT_COUNT,
    STATE_FORMAT,
    TOPICS,
    QueueEnd,
    StateName,
    StateSnapshot,
    TopicState,
    decode_state,
)
from thermocline.tiered.state.state_log import StateLog

__all__ = [
    "CARRIED_BYTES_MAX",
    "CONSUMER_OFFSETS",
    "GROUPS",
    "KEPT_COUNT",
    "STATE_FORMAT",
    "TOPICS",
    "CarriedState",
    "QueueEnd",
    "RecoveryPlan",
    "StateLog",
    "StateName",
    "StateSnapshot",
    "TopicPlan",
    "TopicState",
    "decode_state",
    "encode_carried",
    "find_last",
    "find_newest",
    "find_superseded",
    "first_place",
    "plan_recovery",
    "read_newest",
    "snapshot",
    "with_carried",
]
