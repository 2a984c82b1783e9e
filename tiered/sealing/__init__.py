"""Sealing: records of the hot log become segments and packs, round by round, and are committed."""

from thermocline.tiered.sealing.catalog_commits import RETRY_DELAY_MS, RETRY_DELAY_MS_MAX, CatalogCommits
from thermocline.tiered.sealing.due_changes import SWEEPS_WAITED_MAX, DueChanges, TopicReport
from thermocline.tiered.sealing.gate_lag import RECORDS_MAX, GateLag
from thermocline.tiered.sealing.local_files import UNIT, LocalLog, LocalQueues, Units
from thermocline.tiered.sealing.pack_sealer import ENTRY_BYTES_MAX, PackSealer
from thermocline.tiered.sealing.round_costs import RoundCosts, piece_bytes_of
from thermocline.tiered.sealing.round_uploads import RoundUploads
from thermocline.tiered.sealing.seal_admission import SealAdmission
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPolicy
from thermocline.tiered.sealing.seal_demands import SealDemands, SealOutcome
from thermocline.tiered.sealing.seal_lead import SealLead
from thermocline.tiered.sealing.seal_rounds import Carry, OnSealed, SealRounds
from thermocline.tiered.sealing.sealer import FRAMES_IN_MEMORY, RECORD_MEMORY_BYTES, Sealer
from thermocline.tiered.sealing.sweep_turn import Sweeps, SweepState
from thermocline.tiered.sealing.traffic_record import MINUTE_MS, TopicTraffic, TrafficRecord, TrafficWindow

__all__ = [
    "ENTRY_BYTES_MAX",
    "FRAMES_IN_MEMORY",
    "MINUTE_MS",
    "RECORDS_MAX",
    "RECORD_MEMORY_BYTES",
    "RETRY_DELAY_MS",
    "RETRY_DELAY_MS_MAX",
    "SWEEPS_WAITED_MAX",
    "UNIT",
    "Carry",
    "CatalogCommits",
    "DueChanges",
    "GateLag",
    "LocalLog",
    "LocalQueues",
    "OnSealed",
    "PackSealer",
    "RoundCosts",
    "RoundUploads",
    "SealAdmission",
    "SealBacklog",
    "SealDemands",
    "SealLead",
    "SealOutcome",
    "SealPolicy",
    "SealRounds",
    "Sealer",
    "SweepState",
    "Sweeps",
    "TopicReport",
    "TopicTraffic",
    "TrafficRecord",
    "TrafficWindow",
    "Units",
    "piece_bytes_of",
]
