"""Controllers: their state, the replica sets that they keep, elections; by the controllers' addresses.

`controllers` is `host:port`, or several of one group with `;` between: methods about replica sets ask the one that
leads. Works with Thermocline's controllers and with Apache RocketMQ's; `controller_status` with the former alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.fan_out import ask_each
from thermocline.remoting.bodies.replica import BrokerReplicasInfo, ControllerStatus, ReplicasInfo
from thermocline.remoting.clients import split_addresses
from thermocline.remoting.errors import (
    BrokerBusyError,
    InvalidParameterError,
    MQError,
    RequestTimeoutError,
    UnavailableError,
    UnsupportedRequestError,
)
from thermocline.remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
)
from thermocline.remoting.json_dialect import dumps
from thermocline.remoting.private_requests import PrivateRequestCode, ReplicaHandOverAnswer, ReplicaHandOverHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import format_config_text, parse_config_text

__all__ = ["ControllerAdministration", "ControllerMetadata", "ElectedMaster"]

T = TypeVar("T")
ANSWER_MS = 1_000
"""For the answer to a request beside what the request itself waits."""


class ControllerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What one controller says of its group. `peers`: address by node id; `leader`: None while there is none."""

    group: str
    leader: str | None
    leader_address: str | None
    is_leader: bool
    peers: dict[str, str]


class ElectedMaster(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an election."""

    broker_id: int
    address: str | None
    master_epoch: int
    sync_state_set_epoch: int


class ControllerAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def controller_metadata(self, controllers: str) -> dict[str, ControllerMetadata]:
        """Return what each controller says of its group, by its address; PartialResultError: one does not answer."""
        return await self._ask_controllers(controllers, self._metadata)

    async def controller_status(self, controllers: str) -> dict[str, ControllerStatus]:
        """Return the state of each controller with its own tables of replica sets, by its address.

        Raises:
            UnsupportedRequestError: It is Apache RocketMQ's.
            PartialResultError: One does not answer.
        """

        async def ask(address: str) -> ControllerStatus:
            answer = await self._running().call(address, PrivateRequestCode.CONTROLLER_STATUS)
            return ControllerStatus.decode(answer.body)

        return await self._ask_controllers(controllers, ask)

    async def replica_sets(self, controllers: str, broker_names: Collection[str]) -> dict[str, ReplicasInfo]:
        """Return master and replicas of each of these broker names; names that are not registered are left out.

        Raises:
            UnavailableError: No controller leads.
        """
        leader = await self._leader(controllers)
        body = dumps(list(broker_names))
        answer = await self._running().call(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        return BrokerReplicasInfo.decode(answer.body).replicas_info_table

    async def elect_master(
        self, controllers: str, *, cluster: str, broker_name: str, broker_id: int, pause_ms: int = 3_000
    ) -> ElectedMaster:
        """Make one replica of the SyncStateSet the master, which the others follow.

        The present master, if it answers, first lets the replica have its whole log, and refuses sends meanwhile, for
        `pause_ms` (to 10 000) at most: nothing that was acknowledged is lost. 0: elect at once. Brokers of RocketMQ
        cannot do that: theirs are elected at once.

        Raises:
            UnavailableError: No controller leads; or the replica has not caught up in `pause_ms`, and none is elected.
            ResponseError: The replica is dead or not in the set (2012), or it is the master already (2011).
        """
        if pause_ms:
            await self._hand_over(controllers, broker_name=broker_name, broker_id=broker_id, pause_ms=pause_ms)
        header = ElectMasterRequestHeader(
            cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, designate_elect=True
        )
        answer = await self._running().call(
            await self._leader(controllers), RequestCode.CONTROLLER_ELECT_MASTER, header
        )
        elected = answer.header(ElectMasterResponseHeader)
        return ElectedMaster(
            broker_id=broker_id if elected.master_broker_id is None else elected.master_broker_id,
            address=elected.master_address,
            master_epoch=elected.master_epoch or 0,
            sync_state_set_epoch=elected.sync_state_set_epoch or 0,
        )

    async def _hand_over(self, controllers: str, *, broker_name: str, broker_id: int, pause_ms: int) -> None:
        info = (await self.replica_sets(controllers, [broker_name])).get(broker_name)
        is_in_sync = info is not None and any(
            replica.broker_id == broker_id and replica.alive for replica in info.in_sync_replicas
        )
        if info is None or not info.master_address or info.master_broker_id == broker_id or not is_in_sync:
            return  # the election answers that
        header = ReplicaHandOverHeader(broker_id=broker_id, pause_ms=pause_ms)
        try:
            answer = await self._running().call(
                info.master_address, PrivateRequestCode.REPLICA_HAND_OVER, header, timeout_ms=pause_ms + ANSWER_MS
            )
        except UnsupportedRequestError:
            return  # a broker of RocketMQ
        except BrokerBusyError:
            raise  # another switch is under way
        except (UnavailableError, RequestTimeoutError):
            return  # a master that is dead, or frozen: that is why another one is to be elected
        if not msgspec.json.decode(answer.body, type=ReplicaHandOverAnswer).has_all:
            raise UnavailableError(
                "the replica has not caught up with the master in time, and is not elected",
                broker_id=broker_id,
                pause_ms=pause_ms,
            )

    async def clean_broker_data(
        self,
        controllers: str,
        *,
        cluster: str,
        broker_name: str,
        broker_ids: Sequence[int] = (),
        living: bool = False,
    ) -> None:
        """Have the controllers forget replicas of a broker name, or all of them. `living`: although they are alive.

        Raises:
            UnavailableError: No controller leads.
            ResponseError: One of them is alive, or there is none (2009).
        """
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_controller_ids_to_clean=";".join(map(str, broker_ids)) or None,
            is_clean_living_broker=living,
        )
        await self._running().call(await self._leader(controllers), RequestCode.CLEAN_BROKER_DATA, header)

    async def controller_config(self, controllers: str) -> dict[str, dict[str, str]]:
        """Return the settings of each controller by its address; PartialResultError: one does not answer."""

        async def ask(address: str) -> dict[str, str]:
            answer = await self._running().call(address, RequestCode.GET_CONTROLLER_CONFIG)
            return parse_config_text(bytes(answer.body).decode("utf-8", "replace"))

        return await self._ask_controllers(controllers, ask)

    async def update_controller_config(self, controllers: str, changes: Mapping[str, str]) -> list[str]:
        """Change settings of each controller; return their addresses. PartialResultError: some have not done it."""
        body = format_config_text(changes).encode()

        async def ask(address: str) -> None:
            await self._running().call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)

        return list(await self._ask_controllers(controllers, ask))

    async def _metadata(self, address: str) -> ControllerMetadata:
        answer = await self._running().call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        header = answer.header(GetMetaDataResponseHeader)
        nodes = [node.partition(":") for node in (header.peers or "").split(";") if node]
        return ControllerMetadata(
            group=header.group or "",
            leader=header.controller_leader_id,
            leader_address=header.controller_leader_address,
            is_leader=header.is_leader,
            peers={name: place for name, _, place in nodes},
        )

    async def _leader(self, controllers: str) -> str:
        """The address of the controller that leads, as the first one says that answers.

        Raises:
            UnavailableError: None answers, or none leads.
        """
        failure: MQError | None = None
        for address in _addresses(controllers):
            try:
                found = (await self._metadata(address)).leader_address
            except UnavailableError as error:
                failure = error
                continue
            if found:
                return found
        if failure is not None:
            raise failure
        raise UnavailableError("no controller leads", controllers=controllers)

    async def _ask_controllers(self, controllers: str, ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        answers = await ask_each(_addresses(controllers), ask)
        return answers.whole(dict(answers.by_peer))


def _addresses(controllers: str) -> tuple[str, ...]:
    found = tuple(split_addresses(controllers))
    if not found:
        raise InvalidParameterError("a controller's address is needed", value=controllers)
    return found
