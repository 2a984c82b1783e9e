"""Events: the changes of replica sets that controllers agree on, as they are in the log.

A proposal is one JSON object: `{"after": revision, "event": {"type": ..., ...}}`. It is a disk format and a wire format
between controllers: members are added with a default, never renamed.
Source: controller/impl/event/, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from thermocline.remoting.errors import CorruptDataError


class AlterSyncStateSet(msgspec.Struct, frozen=True, kw_only=True, tag="alterSyncStateSet", rename="camel"):
    """The SyncStateSet is another one."""

    broker_name: str
    sync_state_set: tuple[int, ...]


class ApplyBrokerId(msgspec.Struct, frozen=True, kw_only=True, tag="applyBrokerId", rename="camel"):
    """A replica has a number."""

    cluster_name: str
    broker_name: str
    broker_address: str
    broker_id: int
    check_code: str


class ElectMaster(msgspec.Struct, frozen=True, kw_only=True, tag="electMaster", rename="camel"):
    """The master is another one; None: it is gone, and the SyncStateSet stays as it is."""

    broker_name: str
    master_id: int | None


class CleanBrokerData(msgspec.Struct, frozen=True, kw_only=True, tag="cleanBrokerData", rename="camel"):
    """Replicas are forgotten; None: all of the name."""

    broker_name: str
    broker_ids: tuple[int, ...] | None


class UpdateBrokerAddress(msgspec.Struct, frozen=True, kw_only=True, tag="updateBrokerAddress", rename="camel"):
    """A replica serves at another address."""

    broker_name: str
    broker_id: int
    broker_address: str


Event: TypeAlias = AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and the revision of the tables that it was checked against."""

    after: int
    event: Event

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Proposal:
        """From JSON.

        Raises:
            CorruptDataError: It is none.
        """
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptDataError(f"an event of the controller cannot be read: {error}") from error
