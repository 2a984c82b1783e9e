"""Client settings: what a proxy answers to a client's settings.

A producer gets the rules for retries of a send and the largest body, a consumer its group's configuration. What the
client sent besides is sent back as it was: C++ clients take their namespace from it.
Source: GrpcClientSettingsManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from typing import Any

from thermocline.proxy.grpc.messages import messages
from thermocline.proxy.grpc.service.conversion import duration, duration_ms
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.bodies import CustomizedRetryPolicy, ExponentialRetryPolicy, SubscriptionGroupConfig

__all__ = ["attempts_max", "merged_settings", "shown_settings"]

SHOWN_MAX = 32
"""Subscriptions of a client that are shown to people."""


def attempts_max(group: SubscriptionGroupConfig) -> int:
    """How often a message is delivered to a group at most."""
    return group.retry_max_times + 1


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
