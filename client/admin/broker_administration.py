"""Brokers and NameServers: who is there, settings, figures, write permission, key-value configuration."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.answer import check_answer
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies import KVTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.config_text import format_config_text, parse_config_text
from thermocline.remoting.errors import InvalidRequestError, QueryNotFoundError
from thermocline.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from thermocline.remoting.request_code import RequestCode

__all__ = ["CLEANING_CODES", "BrokerAdministration"]

CLEANING_CODES = {
    "expired-queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "unused-topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "expired-log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


class BrokerAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def cluster_info(self) -> list[BrokerAddress]:
        """Return every broker process of every cluster, sorted by name and id."""
        return await self._brokers()

    async def broker_runtime_info(self, broker: str) -> dict[str, str]:
        """Return the figures of a broker (name or address) by their names; ObjectNotFoundError: no such broker."""
        (master,) = await self._masters(broker=broker)
        answer = await self._running().call(master.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answer.body).table

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings by their property names; ObjectNotFoundError: no such broker."""
        (master,) = await self._masters(broker=broker)
        answer = await self._running().call(master.address, RequestCode.GET_BROKER_CONFIG)
        return parse_config_text(bytes(answer.body).decode())

    async def update_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a broker; names that it does not know are passed over by it.

        Raises:
            ObjectNotFoundError: No such broker.
            InvalidRequestError: A value is impossible, or a setting may not be changed.
        """
        (master,) = await self._masters(broker=broker)
        body = format_config_text(changes).encode()
        await self._running().call(master.address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def clean_broker(self, broker: str, what: str) -> None:
        """Have a broker (name or address) remove now what it would remove by itself later.

        `what`: "expired-queues" (queue files behind the log's first message), "unused-topics" (queue files of topics
        that it does not have any more), or "expired-log" (log files beyond their time).

        Raises:
            ObjectNotFoundError: No such broker.
            InvalidRequestError: There is nothing of that name.
        """
        code = CLEANING_CODES.get(what)
        if code is None:
            raise InvalidRequestError(f"one of {', '.join(CLEANING_CODES)} can be cleaned", what=what)
        (master,) = await self._masters(broker=broker)
        await self._running().call(master.address, code)

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the settings of every NameServer by its address; UnavailableError when one does not answer."""
        session = self._running()
        configs: dict[str, dict[str, str]] = {}
        for address in session.name_servers.addresses:
            answer = await session.call(address, RequestCode.GET_NAMESRV_CONFIG)
            configs[address] = parse_config_text(bytes(answer.body).decode())
        return configs

    async def update_namesrv_config(self, changes: Mapping[str, str]) -> None:
        """Change settings of every NameServer."""
        body = format_config_text(changes).encode()
        await self._running().name_servers.call_each(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Have all NameServers route no more sends to a broker; return how many topics that concerns."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._running().name_servers.call_each(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count for answer in answers)

    async def add_write_permission(self, broker_name: str) -> int:
        """Undo `wipe_write_permission`; return how many topics that concerns."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._running().name_servers.call_each(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count for answer in answers)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a value in every NameServer's key-value configuration."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._running().name_servers.call_each(RequestCode.PUT_KV_CONFIG, header)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return a value of the key-value configuration, None when there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        try:
            answer = await self._running().name_servers.call(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFoundError:
            return None
        return answer.header(GetKVConfigResponseHeader).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Remove a value from every NameServer's key-value configuration."""
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        await self._running().name_servers.call_each(RequestCode.DELETE_KV_CONFIG, header)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace; nothing for one that does not exist."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        try:
            answer = await self._running().name_servers.call(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except QueryNotFoundError:
            return {}
        return KVTable.decode(answer.body).table

    async def invoke(self, address: str, command: RemotingCommand, *, timeout_ms: int | None = None) -> RemotingCommand:
        """Send any request to any address and return the successful answer, for what has no method here.

        Raises:
            MQError: It was refused, or not answered.
        """
        answer = await self._running().connections.call(
            address, command, timeout_ms=timeout_ms or self.request_timeout_ms
        )
        check_answer(answer, address=address)
        return answer
