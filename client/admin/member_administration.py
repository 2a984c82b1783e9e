"""Connected clients: producers and members of consumer groups, and what these are asked through their broker."""

from __future__ import annotations

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.fan_out import ask_until
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies import (
    ClientConnection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from thermocline.remoting.bodies.proxied_client import ListedClient, ProxiedClientsList
from thermocline.remoting.errors import ConsumerOfflineError, ObjectNotFoundError, ResponseError, UnavailableError
from thermocline.remoting.headers import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.private_requests import PrivateRequestCode, ProxiedClientsListHeader
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import format_address

__all__ = ["MemberAdministration"]

MEMBER_TIMEOUT_MS = 10_000


class MemberAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def consumer_connections(self, group: str) -> ConsumerConnection:
        """Return the members of a group that are connected, and what they subscribe to.

        Raises:
            ConsumerOfflineError: None is connected.
            PartialResultError: Some brokers failed; `result` has the members that the others know.
        """
        answers = await self._ask_each(
            await self._masters(), lambda master: self._members_at(master, group), takes_replicas=True
        )
        merged: ConsumerConnection | None = None
        seen: set[str] = set()
        for found in answers.values():
            if found is None:
                continue
            connections = [one for one in found.connection_set if one.client_id not in seen]
            seen.update(one.client_id for one in connections)
            if merged is None:
                merged = found
            else:
                merged.connection_set += connections
        answers.whole(merged or ConsumerConnection())
        if merged is None:
            raise ConsumerOfflineError("no member of this group is connected", group=group)
        return merged

    async def consumer_running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """Return the running state of a member of a group; the broker forwards the request.

        Raises:
            ConsumerOfflineError: It is connected to no broker.
            UnsupportedRequestError: It does not serve such questions.
            UnavailableError: It could not answer now. Go members cannot for some seconds after their first messages.
        """
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_stacks
        )

        async def ask(master: BrokerAddress) -> ConsumerRunningInfo | None:
            found = await self._members_at(master, group)
            if found is None or client_id not in {one.client_id for one in found.connection_set}:
                return None
            answer = await self._running().call(
                master.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms=MEMBER_TIMEOUT_MS
            )
            if not answer.body:
                # The Go client answers success with a body that lacks the rates before its second sample.
                raise UnavailableError("the member cannot tell now how it is", client_id=client_id, why=answer.remark)
            return ConsumerRunningInfo.decode(answer.body)

        answers = await ask_until(await self._masters(), ask, lambda info: info is not None)
        for info in answers.values():
            if info is not None:
                return info
        answers.require_all()
        raise ConsumerOfflineError("this member is not connected", group=group, client_id=client_id)

    async def consume_message_directly(
        self, group: str, client_id: str, offset_message_id: str, *, topic: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a member of a group consume one message now, outside of its queues; return what its listener answered.

        The id is the broker's. Offsets stay as they are, and a failure is not retried.

        Raises:
            InvalidRequestError: It is no such id.
            ResponseError: The broker has no such message, or no such member is connected to it.
            UnavailableError: The broker or the member does not answer.
        """
        place = decode_message_id(offset_message_id)
        header = ConsumeMessageDirectlyRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=offset_message_id, topic=topic
        )
        answer = await self._running().call(
            format_address(*place.host), RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_ms=MEMBER_TIMEOUT_MS
        )
        return ConsumeMessageDirectlyResult.decode(answer.body)

    async def producer_connections(self, group: str) -> list[ClientConnection]:
        """Return the producers of a group that are connected.

        Raises:
            ObjectNotFoundError: None is.
            PartialResultError: Some brokers failed; `result` has the producers that the others know.
        """
        header = GetProducerConnectionListRequestHeader(producer_group=group)

        async def ask(master: BrokerAddress) -> list[ClientConnection]:
            try:
                answer = await self._running().call(master.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except ResponseError:
                return []
            return list(ProducerConnection.decode(answer.body).connection_set)

        answers = await self._ask_each(await self._masters(), ask)
        found = list({one.client_id: one for each in answers.values() for one in each}.values())
        answers.whole(found)
        if not found:
            raise ObjectNotFoundError("no producer of this group is connected", group=group)
        return found

    async def proxied_clients(self, *, group: str | None = None, cluster: str | None = None) -> ProxiedClientsList:
        """Return the gRPC clients of all proxies, of all groups or of one (of producers a topic).

        Every proxy reports its clients to every broker of its cluster, so each client is returned once for each proxy.
        `clients` may hold fewer than `total`, which is the greatest of all brokers: it answers with 2000.

        Raises:
            UnsupportedRequestError: The brokers are not Thermocline's.
            PartialResultError: Some brokers failed; `result` has the clients that the others know.
        """
        header = ProxiedClientsListHeader(group=group)

        async def ask(master: BrokerAddress) -> ProxiedClientsList:
            answer = await self._running().call(master.address, PrivateRequestCode.PROXIED_CLIENTS_LIST, header)
            return loads_as(answer.body, ProxiedClientsList)

        answers = await self._ask_each(await self._masters(cluster=cluster), ask)
        found: dict[tuple[str, str], ListedClient] = {}
        total = 0
        for each in answers.values():
            total = max(total, each.total)
            found |= {(one.proxy, one.client.client_id): one for one in each.clients}
        clients = sorted(found.values(), key=lambda one: (one.client.kind, one.client.groups, one.client.client_id))
        return answers.whole(ProxiedClientsList(total=max(total, len(clients)), clients=tuple(clients)))

    async def list_producers(self, *, broker: str | None = None) -> dict[str, list[ProducerInfo]]:
        """Return the producers that are connected to any broker, or to one (name or address), by their groups.

        Raises:
            ObjectNotFoundError: No such broker.
            PartialResultError: Some brokers failed; `result` has the producers that the others know.
        """

        async def ask(master: BrokerAddress) -> dict[str, list[ProducerInfo]]:
            answer = await self._running().call(master.address, RequestCode.GET_ALL_PRODUCER_INFO)
            return ProducerTableInfo.decode(answer.body).data

        answers = await self._ask_each(await self._masters(broker=broker), ask)
        found: dict[str, dict[str, ProducerInfo]] = {}
        for groups in answers.values():
            for group, producers in groups.items():
                found.setdefault(group, {}).update({one.client_id: one for one in producers})
        return answers.whole({group: list(found[group].values()) for group in sorted(found)})

    async def _members_at(self, master: BrokerAddress, group: str) -> ConsumerConnection | None:
        """The members of a group that are connected to one broker; None when there are none."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        try:
            answer = await self._running().call(master.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ConsumerOfflineError:
            return None
        return ConsumerConnection.decode(answer.body)
