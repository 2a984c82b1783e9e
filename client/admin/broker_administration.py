"""Brokers and NameServers: who is there, settings, figures, write permission, key-value configuration."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.answer import check_answer
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies import KVTable
from thermocline.remoting.command import RemotingCommand
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
from thermocline.remoting.settings import format_config_text, parse_config_text

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
        return await self._ask_one(broker, self._runtime_info)

    async def runtime_infos(self) -> dict[BrokerAddress, dict[str, str]]:
        """Return the figures of every broker process of every cluster, sorted by name and id.

        Raises:
            PartialResultError: A broker failed.
        """
        answers = await self._ask_each(await self._brokers(), self._runtime_info)
        return answers.whole(answers.by_peer)

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings by their property names; ObjectNotFoundError: no such broker."""
        return await self._ask_one(broker, self._broker_config)

    async def update_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a broker; names that it does not know are passed over by it.

        Raises:
            ObjectNotFoundError: No such broker.
            InvalidRequestError: A value is impossible, or a setting may not be changed.
        """
        body = format_config_text(changes).encode()

        async def ask(master: BrokerAddress) -> None:
            await self._running().call(master.address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

        await self._ask_one(broker, ask)

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

        async def ask(master: BrokerAddress) -> None:
            await self._running().call(master.address, code)

        await self._ask_one(broker, ask)

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the settings of every NameServer by its address; PartialResultError when one does not answer."""
        answers = await self._running().name_servers.call_each(RequestCode.GET_NAMESRV_CONFIG)
        return answers.whole({address: _settings(answer) for address, answer in answers.by_peer.items()})

    async def update_namesrv_config(self, changes: Mapping[str, str]) -> list[str]:
        """Change settings of every NameServer; return their addresses. PartialResultError: some have not done it."""
        body = format_config_text(changes).encode()
        answers = await self._running().name_servers.call_each(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        return answers.whole(answers.names())

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Have all NameServers route no more sends to a broker; return how many topics that concerns."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._running().name_servers.call_each(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        counts = [answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count for answer in answers.values()]
        return answers.whole(max(counts, default=0))

    async def add_write_permission(self, broker_name: str) -> int:
        """Undo `wipe_write_permission`; return how many topics that concerns."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._running().name_servers.call_each(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        counts = [answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count for answer in answers.values()]
        return answers.whole(max(counts, default=0))

    async def put_kv(self, namespace: str, key: str, value: str) -> list[str]:
        """Store a value in every NameServer's key-value configuration; return their addresses.

        Raises:
            PartialResultError: Some NameServers have not stored it.
        """
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        answers = await self._running().name_servers.call_each(RequestCode.PUT_KV_CONFIG, header)
        return answers.whole(answers.names())

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return a value of the key-value configuration, None when there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        try:
            answer = await self._running().name_servers.call(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFoundError:
            return None
        return answer.header(GetKVConfigResponseHeader).value

    async def delete_kv(self, namespace: str, key: str) -> list[str]:
        """Remove a value from every NameServer's key-value configuration; return their addresses.

        Raises:
            PartialResultError: Some NameServers may have it still.
        """
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        answers = await self._running().name_servers.call_each(RequestCode.DELETE_KV_CONFIG, header)
        return answers.whole(answers.names())

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

    async def _runtime_info(self, broker: BrokerAddress) -> dict[str, str]:
        answer = await self._running().call(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answer.body).table

    async def _broker_config(self, broker: BrokerAddress) -> dict[str, str]:
        answer = await self._running().call(broker.address, RequestCode.GET_BROKER_CONFIG)
        return _settings(answer)


def _settings(answer: RemotingCommand) -> dict[str, str]:
    return parse_config_text(bytes(answer.body).decode("utf-8", "replace"))
