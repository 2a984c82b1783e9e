"""Client settings: the answer of a proxy to a client's settings, and their copies at other proxies.

A producer gets the rules for retries of a send and the largest body, a consumer its group's configuration. What the
client sent besides is sent back as it was: C++ clients take their namespace from it.
Source: GrpcClientSettingsManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from typing import Any

from thermocline.proxy.clients import ProxyClient
from thermocline.proxy.grpc.messages import messages
from thermocline.proxy.grpc.service.conversion import duration, duration_ms
from thermocline.proxy.grpc.service.validation import read_subscription
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.bodies import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from thermocline.remoting.bodies.proxied_client import (
    EXPRESSION_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    ProxiedClient,
    ProxiedSubscription,
)

__all__ = ["REPORTED_MAX", "attempts_max", "merged_settings", "reported_client", "shown_settings", "subscriptions_of"]

SHOWN_MAX = 32
"""Subscriptions of a client that are shown to people."""
REPORTED_MAX = 128
"""Subscriptions of a client that a report to brokers names."""
REPORTED_MS_MAX = INT_MAX = (1 << 31) - 1


def attempts_max(group: SubscriptionGroupConfig) -> int:
    """How often a message is delivered to a group at most; groups that retry for ever have the largest number."""
    return min(group.retry_max_times + 1, INT_MAX)


def shown_settings(settings: Any) -> dict[str, Any]:
    """Return what a client's settings say, for people: its subscriptions, and how long it waits for an answer.

    `settings`: None before they have come; nothing is shown then.
    """
    if settings is None:
        return {}
    entries = settings.subscription.subscriptions
    shown: dict[str, Any] = {"requestTimeoutMs": duration_ms(settings.request_timeout)}
    if settings.WhichOneof("pub_sub") == "subscription":
        shown["subscriptions"] = {entry.topic.name: entry.expression.expression for entry in entries[:SHOWN_MAX]}
        shown["subscriptionCount"] = len(entries)
    return shown


def subscriptions_of(settings: Any, *, count_max: int) -> list[SubscriptionData]:
    """Return the first subscriptions of a consumer's settings, which were checked; none before they have come."""
    if settings is None or settings.WhichOneof("pub_sub") != "subscription":
        return []
    entries = settings.subscription.subscriptions[:count_max]
    return [read_subscription(entry.topic.name, entry.expression) for entry in entries]


def reported_client(client: ProxyClient, *, started_ms: int) -> ProxiedClient:
    """Return the report of a client to brokers; of long texts their beginning. `started_ms`: since 1970."""
    timeout_ms = 0 if client.settings is None else duration_ms(client.settings.request_timeout)
    return ProxiedClient(
        client_id=client.client_id,
        kind=client.kind,
        groups=client.names,
        language=client.language,
        version=client.version,
        address=client.remote_address,
        started_ms=started_ms,
        user=client.username[:NAME_CHARACTERS_MAX],
        request_timeout_ms=min(max(timeout_ms, 0), REPORTED_MS_MAX),
        subscriptions=tuple(
            ProxiedSubscription(
                each.topic[:NAME_CHARACTERS_MAX], each.sub_string[:EXPRESSION_CHARACTERS_MAX], each.expression_type
            )
            for each in subscriptions_of(client.settings, count_max=REPORTED_MAX)
        ),
    )


def merged_settings(settings: Any, config: ProxyConfig, group: SubscriptionGroupConfig | None) -> Any:
    """Return a client's settings with the proxy's. `group`: of a consumer, None where there is none: the defaults."""
    merged = messages.Settings()
    merged.CopyFrom(settings)
    merged.metric.Clear()
    merged.metric.on = False
    if settings.WhichOneof("pub_sub") == "publishing":
        merged.publishing.max_body_size = max(config.message_bytes_max, 0) or config.inbound_bytes_max
        merged.publishing.validate_message_type = config.checks_message_type
        policy = merged.backoff_policy
        policy.max_attempts = config.producer_attempts
        backoff = policy.exponential_backoff
        backoff.initial.CopyFrom(duration(config.producer_backoff_initial_ms))
        backoff.max.CopyFrom(duration(config.producer_backoff_max_ms))
        backoff.multiplier = config.producer_backoff_multiplier
    else:
        _merge_group(merged, config, group or SubscriptionGroupConfig())
    return merged


def _merge_group(merged: Any, config: ProxyConfig, group: SubscriptionGroupConfig) -> None:
    subscription = merged.subscription
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = config.receive_batch
    subscription.long_polling_timeout.CopyFrom(duration(config.polling_ms_max))
    policy = merged.backoff_policy
    policy.max_attempts = attempts_max(group)
    retry = group.group_retry_policy
    if retry.type == "EXPONENTIAL":
        rules = retry.exponential_retry_policy or ExponentialRetryPolicy()
        policy.exponential_backoff.initial.CopyFrom(duration(rules.initial))
        policy.exponential_backoff.max.CopyFrom(duration(rules.max))
        policy.exponential_backoff.multiplier = rules.multiplier
    else:
        del policy.customized_backoff.next[:]
        delays = (retry.customized_retry_policy or CustomizedRetryPolicy()).next
        policy.customized_backoff.next.extend(duration(delay_ms) for delay_ms in delays)
