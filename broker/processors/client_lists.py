"""Client lists: who is in a group, for tools: clients that are connected here, and those that proxies report.

A client behind a proxy is shown by its own address, language and version; what the members that are connected here
subscribe to, and how they consume, comes first.
Source: ConsumerManageProcessor.java, ClientActivity.java of the proxy, Apache RocketMQ 5.3.
"""

from collections.abc import Sequence

from thermocline.broker.tables import Client, ConsumerGroup
from thermocline.remoting.bodies import (
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    ClientConnection,
    ConsumerConnection,
    ProducerInfo,
    SubscriptionData,
)
from thermocline.remoting.bodies.proxied_client import PUSH_CONSUMER, ProxiedClient, ProxiedSubscription
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.errors import SubscriptionParseError
from thermocline.remoting.language_code import LANGUAGE_BY_NAME, LanguageCode
from thermocline.remoting.release_ordinal import release_ordinal

PROXIED_FROM_WHERE = "CONSUME_FROM_LAST_OFFSET"
"""Of consumers behind a proxy, as RocketMQ's proxy registers them."""


def consumer_connection(group: ConsumerGroup | None, proxied: Sequence[ProxiedClient]) -> ConsumerConnection:
    """A group's members of both kinds, of which there is at least one."""
    assert group is not None or proxied
    subscriptions: dict[str, SubscriptionData] = {}
    for client in proxied:
        subscriptions |= {each.topic: _subscription(each, client.started_ms) for each in client.subscriptions}
    shown = [_proxied_connection(client) for client in proxied]
    if group is not None:
        return ConsumerConnection(
            connection_set=[_connection(client) for client in group.members.values()] + shown,
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=subscriptions | group.subscriptions,
        )
    latest = max(proxied, key=lambda client: client.started_ms)
    return ConsumerConnection(
        connection_set=shown,
        consume_from_where=PROXIED_FROM_WHERE,
        consume_type=CONSUME_PASSIVELY if latest.kind == PUSH_CONSUMER else CONSUME_ACTIVELY,
        message_model=CLUSTERING,
        subscription_table=subscriptions,
    )


def producer_connections(clients: Sequence[Client], proxied: Sequence[ProxiedClient]) -> list[ClientConnection]:
    """The producers of a group, of both kinds."""
    return [_connection(client) for client in clients] + [_proxied_connection(client) for client in proxied]


def producer_infos(clients: Sequence[Client], proxied: Sequence[ProxiedClient], *, now_ms: int) -> list[ProducerInfo]:
    """The same with the time when each was heard of last; addresses in Java's form, with a slash before them.

    Of a client behind a proxy that is `now_ms`: it is here for as long as its proxy hears of it.
    """
    return [
        ProducerInfo(
            client_id=client.client_id,
            language=client.language.name,
            last_update_timestamp=client.seen_ms,
            remote_ip=f"/{client.connection.remote_address}",
            version=client.version,
        )
        for client in clients
    ] + [
        ProducerInfo(
            client_id=client.client_id,
            language=_language(client),
            last_update_timestamp=now_ms,
            remote_ip=f"/{client.address}",
            version=release_ordinal(client.version),
        )
        for client in proxied
    ]


def _connection(client: Client) -> ClientConnection:
    return ClientConnection(
        client_addr=client.connection.remote_address,
        client_id=client.client_id,
        language=client.language.name,
        version=client.version,
    )


def _proxied_connection(client: ProxiedClient) -> ClientConnection:
    return ClientConnection(
        client_addr=client.address,
        client_id=client.client_id,
        language=_language(client),
        version=release_ordinal(client.version),
    )


def _language(client: ProxiedClient) -> str:
    return LANGUAGE_BY_NAME.get(client.language.upper(), LanguageCode.OTHER).name


def _subscription(shown: ProxiedSubscription, version: int) -> SubscriptionData:
    try:
        return parse_subscription(shown.topic, shown.expression, expression_type=shown.kind, version=version)
    except SubscriptionParseError:  # a report of something that is no proxy of ours
        return SubscriptionData(topic=shown.topic, sub_string=shown.expression, sub_version=version)
