"""Private requests to a Thermocline broker or controller, which Apache RocketMQ does not have.

They travel as ordinary remoting frames; header fields are strings as always, answers have a JSON body. An official
broker answers "request code not supported". The numbers stay clear of RocketMQ's own (up to 5001 and from 200050).
A number is never given a second meaning.

| code | header | JSON answer |
|---|---|---|
| TIER_STATUS | topic? | per queue: local range, cold range, waiting, TTL; the helpers' state |
| TIER_SEAL | topic? | what was sealed, once it is committed |
| TIER_EXPLAIN | topic, queueId? | where each range is, what happens next and why |
| TTL_PREVIEW | topic, ttlMs? | `segments`, `packs`, `messages`, `bytes` that would go, `requests`, what stays |
| TTL_SET | topic, ttlMs? | the TTL now in force; no `ttlMs` clears it |
| TTL_EVIDENCE | topic | expired data that is still stored: samples, and its objects named by the catalog |
| TIER_SCRUB | deep?, heal?, afresh?, budgetBytes?, bytesPerSecond? | that it has begun: the same as the next |
| TIER_SCRUB_STATE | | `number`, `isRunning`, how far it is; when none runs `report`: the last one's findings |
| TIER_PURGE | topic | objects rewritten, deleted and remaining; the topic may have been deleted |
| TIER_COST | topic?, forecast?, ttlMs?, segmentBytes?, sealAgeMs? | requests, bytes, storage; `forecast` |
| HAND_OFF_LOOK | group, topic | incarnation; every queue with its range, and the group's offset |
| HAND_OFF_PREPARE | body: HandOffBody | everything is checked, the group held; where it is and will be |
| HAND_OFF_APPLY | group, receiptId | the group has been moved, durably |
| HAND_OFF_ABORT | group, receiptId | the group is held no longer |
| FLUSHED_RANGES | topic | `storeUuid`, `incarnation`, and per queue what may be read and is durable |
| ACL_CHECK | username, resource, actions, sourceIp? | whether a user may, and the entry that decides |
| ACL_VERSION | | `version`: a text that is another one after each change of users or policies, and after a restart |
| TOPIC_INCARNATIONS | | the file of incarnations: where in the log each topic began, what has expired of it |
| REPLICA_SOURCE | | ReplicaSourceAnswer: for slaves, whose ledger the master writes, and which log files it needs |
| REPLICA_HAND_OVER | brokerId, pauseMs | ReplicaHandOverAnswer: of a master that takes no writes now |
| PROXIED_CLIENTS_REPORT | body: ProxiedClientsReport | ProxiedClientsAnswer: which clients a limit refuses |
| PROXIED_CLIENTS_LIST | group? | ProxiedClientsList: the clients that proxies have reported |
| CONTROLLER_CONSENSUS | body: Envelope (controller/consensus/peer_messages.py) | none: one-way, between controllers |
| CONTROLLER_STATUS | | ControllerStatus: the node, and every replica set in its state |

The order and the bodies of a hand-off: remoting/bodies/hand_off.py; of reports: remoting/bodies/proxied_client.py.
"""

from __future__ import annotations

import enum

import msgspec

from thermocline.remoting.header_codec import Header, Int, Long
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset

__all__ = [
    "AclCheckAnswer",
    "AclCheckHeader",
    "AclVersionAnswer",
    "FlushedRange",
    "FlushedRangesAnswer",
    "FlushedRangesHeader",
    "HandOffHeader",
    "HandOffLookHeader",
    "PrivateRequestCode",
    "ProxiedClientsListHeader",
    "ReplicaHandOverAnswer",
    "ReplicaHandOverHeader",
    "ReplicaSourceAnswer",
    "ScrubHeader",
    "TierCostHeader",
    "TierHeader",
    "TierPurgeHeader",
    "TtlEvidenceHeader",
    "TtlHeader",
]


class PrivateRequestCode(enum.IntEnum):
    """Request codes that only a Thermocline broker or controller serves."""

    TIER_STATUS = 90101
    TIER_SEAL = 90102
    TIER_EXPLAIN = 90103
    TTL_PREVIEW = 90104
    TTL_SET = 90105
    TTL_EVIDENCE = 90106
    TIER_SCRUB = 90120
    TIER_SCRUB_STATE = 90121
    TIER_PURGE = 90130
    TIER_COST = 90140
    HAND_OFF_LOOK = 90150
    HAND_OFF_PREPARE = 90151
    HAND_OFF_APPLY = 90152
    HAND_OFF_ABORT = 90153
    FLUSHED_RANGES = 90160
    ACL_CHECK = 90170
    ACL_VERSION = 90171
    PROXIED_CLIENTS_REPORT = 90180
    PROXIED_CLIENTS_LIST = 90181
    TOPIC_INCARNATIONS = 90190
    REPLICA_SOURCE = 90191
    REPLICA_HAND_OVER = 90192
    CONTROLLER_CONSENSUS = 90200
    CONTROLLER_STATUS = 90201


class TierHeader(Header, kw_only=True):
    """TIER_STATUS, TIER_SEAL, TIER_EXPLAIN. Without `topic` of all topics, without `queue_id` of all its queues."""

    topic: str | None = None
    queue_id: Int | None = None


class TierPurgeHeader(Header, kw_only=True):
    """TIER_PURGE."""

    topic: str


class TierCostHeader(Header, kw_only=True):
    """TIER_COST. A setting that is None stays as it is in the forecast."""

    topic: str | None = None
    forecast: bool | None = None
    ttl_ms: Long | None = None
    segment_bytes: Long | None = None
    seal_age_ms: Long | None = None


class ScrubHeader(Header, kw_only=True):
    """TIER_SCRUB."""

    deep: bool = False
    heal: bool = False
    afresh: bool = False
    budget_bytes: Long | None = None
    bytes_per_second: Long | None = None


class TtlHeader(Header, kw_only=True):
    """TTL_PREVIEW, TTL_SET. `ttl_ms` 0 keeps messages for ever; without it the broker's default counts."""

    topic: str
    ttl_ms: Long | None = None


class TtlEvidenceHeader(Header, kw_only=True):
    """TTL_EVIDENCE."""

    topic: str


class HandOffLookHeader(Header, kw_only=True):
    """HAND_OFF_LOOK."""

    group: str
    topic: str


class HandOffHeader(Header, kw_only=True):
    """HAND_OFF_APPLY, HAND_OFF_ABORT."""

    group: str
    receipt_id: str


class FlushedRangesHeader(Header, kw_only=True):
    """FLUSHED_RANGES."""

    topic: str


class AclCheckHeader(Header, kw_only=True):
    """ACL_CHECK. `actions`: names separated by commas, of which one is enough; `source_ip`: the client's address."""

    username: str
    resource: str
    actions: str
    source_ip: str = "127.0.0.1"


class AclCheckAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON body of the answer to ACL_CHECK. `entry`: what decided; None for a super user and without a match."""

    is_allowed: bool
    reason: str
    policy: str | None = None
    entry: str | None = None


class AclVersionAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON body of the answer to ACL_VERSION."""

    version: str


class ProxiedClientsListHeader(Header, kw_only=True):
    """PROXIED_CLIENTS_LIST. `group`: a consumer group, or the topic of producers; without it all."""

    group: str | None = None


class FlushedRange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue. Offsets from `local_start` are in the local log, from `visible_start` not expired either; all below
    `end` are durable. `record_bytes`: of the last few records on average, 0 without one."""

    queue_id: int
    local_start: QueueOffset
    visible_start: QueueOffset
    end: QueueOffset
    record_bytes: int


class FlushedRangesAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON body of the answer to FLUSHED_RANGES."""

    store_uuid: str
    incarnation: int
    queues: list[FlushedRange]


class ReplicaSourceAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON body of the answer to REPLICA_SOURCE. `store_uuid`: of the master's store if it has a cold tier, else
    empty. `has_ledger`: it has claimed a ledger there. `held_offset`: messages of the log from there on wait for
    something that only the master does (delays, times, transactions, POP), so no copy of them may be deleted.
    `log_end`: where the master's log ended then: what no longer waits may have been put up to there."""

    store_uuid: str
    held_offset: PhysicalOffset
    log_end: PhysicalOffset = LOG_START
    has_ledger: bool = False


class ReplicaHandOverHeader(Header, kw_only=True):
    """REPLICA_HAND_OVER. `broker_id`: the replica to be elected. `pause_ms`: no writes are taken for so long."""

    broker_id: Long
    pause_ms: Int


class ReplicaHandOverAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON body of the answer to REPLICA_HAND_OVER. `has_all`: the replica has the whole log, which ends at
    `end_offset`; if not, writes are taken again."""

    has_all: bool
    end_offset: PhysicalOffset
