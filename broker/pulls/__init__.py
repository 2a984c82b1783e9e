"""Pulls: admission of pulls, reading of queues for them, hot and cold, and long polling."""

from thermocline.broker.pulls.cold_pull_limits import ColdPullLimits
from thermocline.broker.pulls.cold_read_quota import ColdReadQuota
from thermocline.broker.pulls.long_polling import (
    SLICE_MAX,
    TICK_MS,
    WAITING_CHARACTERS_MAX,
    LongPolling,
    Place,
)
from thermocline.broker.pulls.pull_admission import Admission, PullAdmission, PullForbiddenError
from thermocline.broker.pulls.pull_finder import ColdNeeded, PullFinder, SearchNeeded
from thermocline.broker.pulls.pull_reply import PullAnswer, write_answer
from thermocline.broker.pulls.pull_request import PullRequest
from thermocline.broker.pulls.remote_pull import RemotePull
from thermocline.broker.pulls.replica_reads import ReplicaReads
from thermocline.broker.pulls.request_expressions import ALL, RequestExpressions, Wanted
from thermocline.broker.pulls.static_pull import StaticPull

__all__ = [
    "ALL",
    "SLICE_MAX",
    "TICK_MS",
    "WAITING_CHARACTERS_MAX",
    "Admission",
    "ColdNeeded",
    "ColdPullLimits",
    "ColdReadQuota",
    "LongPolling",
    "Place",
    "PullAdmission",
    "PullAnswer",
    "PullFinder",
    "PullForbiddenError",
    "PullRequest",
    "RemotePull",
    "ReplicaReads",
    "RequestExpressions",
    "SearchNeeded",
    "StaticPull",
    "Wanted",
    "write_answer",
]
