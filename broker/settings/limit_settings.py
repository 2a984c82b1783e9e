"""Limits of the memory that clients and their connections take in a broker. Table: docs/security.md.

The defaults are above what honest deployments reach. Each refusal is counted by the setting's name
(remoting/connections/limit_counts.py). `Address`: an IPv4 address, or the /64 network of an IPv6 address.
Apache RocketMQ has no such limits, so the names are our own, of RocketMQ's form.
"""

from dataclasses import dataclass, field
from typing import Any

from thermocline.remoting.connections import ServerLimits


def _limit(default: int, name: str, *, least: int = 0, live: bool = True) -> Any:
    """A field as `broker_config.setting` makes it."""
    return field(default=default, metadata={"name": name, "least": least, "most": None, "live": live})


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """The part of BrokerConfig that holds limits."""

    # -- connections ---------------------------------------------------------------------------------------------------
    server_address_connections_max: int = _limit(20_000, "serverConnectionsPerAddressMax", least=1, live=False)
    server_receiving_bytes_max: int = _limit(256 << 20, "serverReceivingBytesMax", least=32 << 20, live=False)
    """Bytes of frames that are received in part, over all connections."""
    server_frame_timeout_ms: int = _limit(60_000, "serverFrameTimeoutMillis", least=100, live=False)
    server_unsent_bytes_max: int = _limit(1 << 30, "serverUnsentBytesMax", least=1 << 20, live=False)
    """Bytes of answers that peers do not read, over all connections."""
    ha_connections_max: int = _limit(16, "haConnectionsMax", least=1, live=False)
    """Slaves of one master."""

    # -- clients -------------------------------------------------------------------------------------------------------
    connection_groups_max: int = _limit(1_000, "clientGroupsPerConnectionMax", least=1)
    """Producer and consumer groups that one connection joins by heartbeats."""
    address_groups_max: int = _limit(50_000, "clientGroupsPerAddressMax", least=1)
    groups_joined_max: int = _limit(200_000, "clientGroupsMax", least=1)
    connection_subscriptions_max: int = _limit(10_000, "clientSubscriptionsPerConnectionMax", least=1)
    """Subscriptions of those groups; a long one counts as several (client_usage.py)."""
    address_subscriptions_max: int = _limit(100_000, "clientSubscriptionsPerAddressMax", least=1)
    subscriptions_max: int = _limit(500_000, "clientSubscriptionsMax", least=1)

    # -- clients that proxies report ---------------------------------------------------------------------------------
    connection_proxied_entries_max: int = _limit(200_000, "proxiedClientEntriesPerConnectionMax", least=1)
    """Clients of one proxy, their groups and subscriptions: an entry each."""
    proxied_entries_max: int = _limit(500_000, "proxiedClientEntriesMax", least=1)

    # -- what first use makes ------------------------------------------------------------------------------------------
    address_auto_topics_max: int = _limit(1_000, "autoCreateTopicsPerAddressMinuteMax")
    minute_auto_topics_max: int = _limit(5_000, "autoCreateTopicsPerMinuteMax")
    auto_topics_max: int = _limit(20_000, "autoCreateTopicsMax")
    """With so many topics none is made by a first message; operators may make more."""
    address_auto_groups_max: int = _limit(1_000, "autoCreateGroupsPerAddressMinuteMax")
    minute_auto_groups_max: int = _limit(5_000, "autoCreateGroupsPerMinuteMax")
    auto_groups_max: int = _limit(20_000, "autoCreateGroupsMax")
    pop_topics_max: int = _limit(100_000, "popRetryTopicsMax")
    """With so many topics, no group pops a topic for the first time: messages that come back may need a topic."""
    offset_pairs_max: int = _limit(500_000, "consumerOffsetPairsMax", least=1)
    """Pairs of topic and group of which offsets are kept."""
    stats_keys_max: int = _limit(100_000, "statsKeysMax", least=1, live=False)
    """Topics, or pairs of topic and group, of one statistic; the others are not counted by themselves."""

    # -- what administrators make by requests --------------------------------------------------------------------------
    request_topics_max: int = _limit(200_000, "createTopicsMax")
    """With so many topics no request makes one; a NameServer takes as many of a broker (`topicsPerBrokerMax`)."""
    request_groups_max: int = _limit(200_000, "createGroupsMax")
    users_max: int = _limit(10_000, "usersMax")
    user_entries_max: int = _limit(1_000, "aclEntriesPerUserMax")
    """Entries of all policies of a user."""
    entries_max: int = _limit(100_000, "aclEntriesMax")
    """The same of all users."""

    # -- waiting requests, locks ---------------------------------------------------------------------------------------
    connection_polls_max: int = _limit(10_000, "longPollsPerConnectionMax", least=1)
    """Pulls, POPs and notifications that wait, each kind by itself."""
    polls_max: int = _limit(200_000, "longPollsMax", least=1)
    """Pulls that wait in all; for POPs: `maxPopPollingSize`."""
    pop_answers_unflushed_bytes_max: int = _limit(256 << 20, "popAnswersUnflushedBytesMax", least=1 << 20)
    """With SYNC_FLUSH: bytes of answers to POPs and acknowledgements that wait for the flush."""
    address_queue_locks_max: int = _limit(50_000, "queueLocksPerAddressMax", least=1)
    queue_locks_max: int = _limit(500_000, "queueLocksMax", least=1)

    # -- rates ---------------------------------------------------------------------------------------------------------
    quotas: str = field(default="", metadata={"name": "quotas", "least": None, "most": None, "live": True})
    """Bytes and requests a second of topics, groups, addresses and users (auth/quota_texts.py)."""

    @property
    def server_limits(self) -> ServerLimits:
        """The limits of the port."""
        return ServerLimits(
            receiving_bytes_max=self.server_receiving_bytes_max,
            frame_timeout_ms=self.server_frame_timeout_ms,
            unsent_bytes_max=self.server_unsent_bytes_max,
            address_connections_max=self.server_address_connections_max,
        )
