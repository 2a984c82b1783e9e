"""Consumer group requests: how groups are set up on this broker.

    200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP         201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG    207 DELETE_SUBSCRIPTIONGROUP
    225 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST    352 GET_SUBSCRIPTIONGROUP_CONFIG        353
    UPDATE_AND_GET_GROUP_FORBIDDEN

Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from thermocline.broker.processors.topic import is_same_version, page_of
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import ConsumerOffsets, GroupTable, check_names, consumer_offsets
from thermocline.remoting.bodies import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupListBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler, LimitCounts
from thermocline.remoting.errors import GroupNotFoundError, InvalidParameterError, LimitReachedError
from thermocline.remoting.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import RETRY_TOPIC_CHARACTERS_MAX

logger = logging.getLogger(__name__)


class GroupProcessor:
    """Serves the consumer group requests."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        persister: ConfigPersister,
        forget_popped: Callable[[str], Awaitable[None]],
        limits: LimitCounts,
    ) -> None:
        """`forget_popped(group)`: what the group has popped does not come back."""
        self._forget_popped = forget_popped
        self._settings = settings
        self._persister = persister
        self._groups = groups
        self._offsets = offsets
        self._stats = stats
        self._limits = limits

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.update_forbidden,
        }

    async def update_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """200: set a group up; durable before the answer."""
        if command.body:
            config = SubscriptionGroupConfig.decode(command.body)
            self._check_room(connection, [config.group_name])
            await self._groups.update([config])
            logger.info("group set up group=%s by=%s", config.group_name, connection.remote_address)
        return RemotingCommand.response(command)

    async def update_groups(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """225: set several groups up; all or none."""
        configs = SubscriptionGroupListBody.decode(command.body).group_config_list
        self._check_room(connection, [config.group_name for config in configs])
        await self._groups.update(configs)
        logger.info("groups set up count=%d by=%s", len(configs), connection.remote_address)
        return RemotingCommand.response(command)

    def _check_room(self, connection: Connection, names: Iterable[str]) -> None:
        new = {name for name in names if name not in self._groups}
        if new:
            self._refuse_above(connection, len(self._groups) + len(new), new=len(new), noun="groups")

    def _refuse_above(self, connection: Connection, count: int, *, noun: str, new: int = 1) -> None:
        """Refuse what would make so many, of which some are new."""
        most = self._settings.broker.request_groups_max
        if count > most:
            error = LimitReachedError(noun, limit="createGroupsMax", present=count - new, most=most)
            self._limits.refused(error.limit, address=connection.remote_address, detail=f"no more {noun}")
            raise error

    async def delete_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """207: forget a group, and its offsets and what it has popped when asked to; durable before the answer."""
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        if header.clean_offset:
            self._offsets.check_writable(header.group_name)
        await self._groups.delete(header.group_name)
        if header.clean_offset:
            # What it has popped would make the group anew when it comes back.
            await self._forget_popped(header.group_name)
            self._offsets.remove_group(header.group_name)
            # Were they still there after a crash, a group of this name would not begin anew.
            await self._persister.save_changed(consumer_offsets.FILE_NAME)
        self._stats.remove_group(header.group_name)
        logger.info(
            "group deleted group=%s offsets=%s by=%s",
            header.group_name,
            header.clean_offset,
            connection.remote_address,
        )
        return RemotingCommand.response(command)

    def get_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """352: one group's configuration; an unknown group is made when groups are made by use."""
        config = self._groups.find_or_create(
            command.header(GetSubscriptionGroupConfigRequestHeader).group, connection.remote_address
        )
        if config is None:
            raise GroupNotFoundError("No group in this broker")
        return RemotingCommand.response(command, body=config.encode())

    def get_all_groups(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """201: all groups, or one page of them in the order of their names."""
        header = command.header(GetAllSubscriptionGroupRequestHeader)
        names: Iterable[str] | None = None
        if self._settings.broker.split_metadata and not (
            header.data_version is None and header.group_seq is None and header.max_group_num is None
        ):
            page_max = self._settings.broker.split_metadata_size
            names = page_of(
                self._groups.configs(),
                start=header.group_seq or 0,
                count=page_max if header.max_group_num is None else min(page_max, header.max_group_num),
                is_continued=is_same_version(header.data_version, self._groups.data_version),
            )
        return RemotingCommand.response(
            command,
            header=GetAllSubscriptionGroupResponseHeader(total_group_num=len(self._groups)),
            body=self._groups.encode_table(names),
        )

    async def update_forbidden(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """353: keep a group from reading a topic, or let it again; without `readable` only tells."""
        groups = self._groups
        header = command.header(UpdateGroupForbiddenRequestHeader)
        check_names(header.group, "")
        if len(header.topic) > RETRY_TOPIC_CHARACTERS_MAX:
            raise InvalidParameterError("the topic's name is too long", characters=len(header.topic))
        if header.readable is False and not groups.is_read_forbidden(header.group, header.topic):
            self._refuse_above(connection, groups.forbidden_count + 1, noun="topics that groups are kept from")
        if header.readable is not None:
            await groups.forbid_read(header.group, header.topic, is_forbidden=not header.readable)
        body = GroupForbidden(
            group=header.group,
            topic=header.topic,
            readable=not groups.is_read_forbidden(header.group, header.topic),
        )
        return RemotingCommand.response(command, remark="", body=body.encode())
