"""Requests about the clients of proxies.

    PROXIED_CLIENTS_REPORT    a proxy tells which gRPC clients are connected to it
    PROXIED_CLIENTS_LIST      the clients of all proxies, for tools

A report is what a heartbeat is for clients that are connected here: each consumer group's configuration and retry topic
are made when they are missing, by whose route tools find the group. A group that may not be made is passed over. With
access control reports are taken of super users alone, as brokers' and proxies' own users are.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.tables import GroupTable, ProxiedClients, TopicTable
from thermocline.remoting.bodies.proxied_client import PRODUCER, ProxiedClientsReport
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Answer, Connection, Handler
from thermocline.remoting.errors import BrokerBusyError, InvalidRequestError
from thermocline.remoting.json_dialect import dumps
from thermocline.remoting.private_requests import PrivateRequestCode, ProxiedClientsListHeader
from thermocline.remoting.topic_validation import retry_topic


class ProxiedClientProcessor:
    """See the module's header."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        proxied: ProxiedClients,
        check_super: Callable[[RemotingCommand, str], None] | None,
    ) -> None:
        """`check_super`: passes a request of a super user from an address; None: without access control."""
        self._topics = topics
        self._groups = groups
        self._proxied = proxied
        self._check_super = check_super

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            PrivateRequestCode.PROXIED_CLIENTS_REPORT: self.take_report,
            PrivateRequestCode.PROXIED_CLIENTS_LIST: self.list_clients,
        }

    def take_report(self, connection: Connection, command: RemotingCommand) -> Answer:
        """PROXIED_CLIENTS_REPORT; answered when the retry topics are durable."""
        if self._check_super is not None:
            self._check_super(command, connection.remote_host[0])
        try:
            report = msgspec.json.decode(command.body, type=ProxiedClientsReport)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"the report of a proxy cannot be read: {error}") from error
        missing = self._missing_retry_topics(connection, report)
        if missing:
            return self._make_topics_then_apply(connection, command, report, missing)
        return self._apply(connection, command, report)

    def list_clients(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """PROXIED_CLIENTS_LIST."""
        group = command.header(ProxiedClientsListHeader).group
        return RemotingCommand.response(command, body=dumps(self._proxied.listed(group or None)))

    def _missing_retry_topics(self, connection: Connection, report: ProxiedClientsReport) -> dict[str, int]:
        """How many queues each retry topic is to have that has to be made."""
        missing: dict[str, int] = {}
        for client in report.clients:
            for group in client.groups if client.kind != PRODUCER else ():
                if retry_topic(group) in self._topics:
                    continue
                try:
                    config = self._groups.find_or_create(group, connection.remote_address)
                except BrokerBusyError:  # counted there
                    continue
                if config is not None:
                    missing[retry_topic(group)] = config.retry_queue_nums
        return missing

    async def _make_topics_then_apply(
        self,
        connection: Connection,
        command: RemotingCommand,
        report: ProxiedClientsReport,
        missing: Mapping[str, int],
    ) -> RemotingCommand | None:
        await asyncio.gather(*(self._topics.ensure(topic, queue_count=count) for topic, count in missing.items()))
        return None if connection.is_closed else self._apply(connection, command, report)

    def _apply(self, connection: Connection, command: RemotingCommand, report: ProxiedClientsReport) -> RemotingCommand:
        return RemotingCommand.response(command, body=dumps(self._proxied.apply_report(connection, report)))
