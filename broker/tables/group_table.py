"""Group table: how every consumer group is set up on this broker.

File: config/subscriptionGroup.json, Apache RocketMQ's:
    {"dataVersion":{...},"forbiddenTable":{group:{topic:bits}},"subscriptionGroupTable":{group:SubscriptionGroupConfig}}

Rules
  - A group that is not set up is made with defaults when it first shows itself, if the settings allow it and its name
    is valid, within limits (creation_limits.py). Such a group is written soon, not at once: if it is lost, it is made
    again.
  - What an operator sets up is durable before it is answered.
  - `forbiddenTable` holds what a group may not do with a topic: bit 2 (PERM_READ's place) forbids reading it.
Owner: the hot process's event loop.
Source: broker/subscription/SubscriptionGroupManager.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from thermocline.broker.settings import BrokerConfig
from thermocline.broker.state_files import ConfigPersister, VersionCounter
from thermocline.broker.tables.creation_limits import GROUPS, CreationLimits
from thermocline.broker.tables.topic_attributes import apply_change
from thermocline.remoting.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTableBody
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import BrokerBusyError, CorruptDataError, InvalidParameterError, InvalidRequestError
from thermocline.remoting.topic_validation import (
    FILTER_SERVER_CONSUMER_GROUP,
    ONS_API_OWNER_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_PULL_GROUP,
    ONS_HTTP_PROXY_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    TOOLS_CONSUMER_GROUP,
    TRANSACTION_GROUP,
    check_group,
    is_system_group,
)

logger = logging.getLogger(__name__)

FILE_NAME = "subscriptionGroup.json"
READ_FORBIDDEN_BIT = 1 << 2

BOOT_GROUPS = (
    TOOLS_CONSUMER_GROUP,
    FILTER_SERVER_CONSUMER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONS_API_PULL_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_OWNER_GROUP,
    TRANSACTION_GROUP,
)
"""Made at every start where missing."""


class GroupReplacement:
    """Groups in place of those of a table, put together one by one."""

    def __init__(self) -> None:
        self.groups: dict[str, SubscriptionGroupConfig] = {}
        self.encoded: dict[str, bytes] = {}
        self.forbidden: dict[str, dict[str, int]] = {}

    def add(self, config: SubscriptionGroupConfig) -> None:
        """Add a group."""
        self.groups[config.group_name] = config
        self.encoded[config.group_name] = _encode_entry(config)


class GroupTable:
    """All consumer groups that are set up."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        persister: ConfigPersister,
        config: Callable[[], BrokerConfig],
        limits: LimitCounts | None = None,
    ) -> None:
        """`limits`: where refusals by limits are counted."""
        self._creations = CreationLimits(GROUPS, config=config, clock=clock, limits=limits or LimitCounts())
        self._persister = persister
        self._config = config
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._encoded: dict[str, bytes] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._version = VersionCounter(clock)

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's configuration; None when it is not set up. Not to be changed by the caller."""
        return self._groups.get(group)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def configs(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups: a view."""
        return self._groups

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self._version.current

    def find_or_create(self, group: str, address: str = "") -> SubscriptionGroupConfig | None:
        """A group's configuration, made with defaults when it is missing and may be made; else None.

        `address`: the client's, host:port, for the limits on groups made by use; empty: the broker needs the group.

        Raises:
            BrokerBusyError: A limit does not allow another group now.
        """
        found = self._groups.get(group)
        if found is not None:
            return found
        config = self._config()
        if not (config.auto_create_group or (config.create_system_groups and is_system_group(group))):
            return None
        try:
            check_group(group)
        except InvalidParameterError:
            return None
        if not self._creations.allows(address, group, present=len(self._groups)):
            raise BrokerBusyError("too many groups were created by their first use, ask again later", group=group)
        created = SubscriptionGroupConfig(group_name=group)
        self._put(created)
        self._persister.request(FILE_NAME)
        logger.info("group created by its first use group=%s", group)
        return created

    def encoded(self, group: str) -> bytes:
        """A group as it stands in the table's JSON: `"name":{...}`."""
        return self._encoded[group]

    # -- changing ------------------------------------------------------------------------------------------------------

    async def update(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Set groups up; durable on return. `attributes` of each is a change, `+key=value` as topics have them.

        Raises:
            InvalidParameterError: A name is not valid; nothing changes.
            InvalidRequestError: An attribute change breaks a rule; nothing changes.
            UnavailableError: The file could not be written; the groups are as before.
        """
        wanted: list[SubscriptionGroupConfig] = []
        for config in configs:
            check_group(config.group_name)
            present = self._groups.get(config.group_name)
            attributes = apply_change(
                {} if present is None else present.attributes, config.attributes, is_new=present is None, allowed={}
            )
            wanted.append(msgspec.structs.replace(config, attributes=attributes))
        before = [(config.group_name, self._groups.get(config.group_name)) for config in wanted]
        for config in wanted:
            self._put(config)
        try:
            await self._persister.save(FILE_NAME)
        except Exception:
            for name, config_before in before:
                if config_before is None:
                    self._groups.pop(name, None)
                    self._encoded.pop(name, None)
                else:
                    self._put(config_before)
            raise
        logger.info("groups set up groups=%s", ",".join(config.group_name for config in wanted))

    async def replace(self, replacement: GroupReplacement, *, version: DataVersion) -> None:
        """Take over, all at once, what a master has; durable on return.

        Raises:
            UnavailableError: The file could not be written; the groups are as before.
        """
        before = self._groups, self._encoded, self._forbidden, self._version.current
        for name in BOOT_GROUPS:
            if name not in replacement.groups:
                replacement.add(self._groups.get(name) or SubscriptionGroupConfig(group_name=name))
        self._groups, self._encoded = replacement.groups, replacement.encoded
        self._forbidden, self._version.current = replacement.forbidden, version
        try:
            await self._persister.save(FILE_NAME)
        except Exception:
            self._groups, self._encoded, self._forbidden, self._version.current = before
            raise

    async def delete(self, group: str) -> None:
        """Forget a group; durable on return, whether it was there or not.

        Raises:
            UnavailableError: The file could not be written; the group is gone from memory only. Ask again.
        """
        self._encoded.pop(group, None)
        self._forbidden.pop(group, None)
        if self._groups.pop(group, None) is not None:
            self._version.bump()
            logger.info("group deleted group=%s", group)
        await self._persister.save(FILE_NAME)

    # -- what a group may not do ---------------------------------------------------------------------------------------

    @property
    def forbidden_count(self) -> int:
        """Pairs of a group and a topic that it is kept from reading."""
        return sum(map(len, self._forbidden.values()))

    def is_read_forbidden(self, group: str, topic: str) -> bool:
        """Whether an operator keeps the group from reading the topic."""
        if not self._forbidden:
            return False
        return bool(self._forbidden.get(group, {}).get(topic, 0) & READ_FORBIDDEN_BIT)

    async def forbid_read(self, group: str, topic: str, *, is_forbidden: bool) -> None:
        """Keep a group from reading a topic, or let it again; durable on return.

        Raises:
            UnavailableError: The file could not be written.
        """
        topics = self._forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        bits = bits | READ_FORBIDDEN_BIT if is_forbidden else bits & ~READ_FORBIDDEN_BIT
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self._version.bump()
        await self._persister.save(FILE_NAME)

    # -- start and file ------------------------------------------------------------------------------------------------

    def load(self, data: bytes | None) -> None:
        """Load the file's content, and make the system's groups where they are missing.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        if data is not None:
            try:
                body = SubscriptionGroupTableBody.decode(data)
            except InvalidRequestError as error:
                raise CorruptDataError("groups cannot be read", file=FILE_NAME, reason=str(error)) from error
            for name, config in body.subscription_group_table.items():
                config.group_name = name
                self._put(config)
            self._forbidden = body.forbidden_table
            self._version.current = body.data_version
        missing = [name for name in BOOT_GROUPS if name not in self._groups]
        for name in missing:
            self._put(SubscriptionGroupConfig(group_name=name))

    def encode(self) -> bytes:
        """The file's content."""
        return self.encode_table(None)

    def encode_table(self, groups: Iterable[str] | None) -> bytes:
        """The table's JSON with some of the groups, or with all and with what groups that are not set up may not do."""
        names = list(self._groups if groups is None else groups)
        forbidden = self._forbidden
        if groups is not None:
            forbidden = {name: forbidden[name] for name in names if name in forbidden}
        return b'{"dataVersion":%s,\n"forbiddenTable":%s,\n"subscriptionGroupTable":{\n%s\n}}' % (
            self._version.text(),
            msgspec.json.encode(forbidden),
            b",\n".join([self._encoded[name] for name in names]),
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _put(self, config: SubscriptionGroupConfig) -> None:
        name = config.group_name
        self._groups[name] = config
        self._encoded[name] = _encode_entry(config)
        self._version.bump()


def _encode_entry(config: SubscriptionGroupConfig) -> bytes:
    return msgspec.json.encode(config.group_name) + b":" + config.encode()
