"""Rights that each RPC needs, read from its request.

| RPC | needs |
|---|---|
| SendMessage, RecallMessage, EndTransaction | Pub on the topic |
| QueryRoute | Pub or Sub on the topic |
| ReceiveMessage, AckMessage, ForwardMessageToDeadLetterQueue, QueryAssignment | Sub on group and topic |
| ChangeInvisibleDuration | Sub on group and topic; RocketMQ: on the group, whatever topic the request names |
| Heartbeat, NotifyClientTermination | Sub on the group, of consumers |
| Telemetry, settings | Pub on each topic of a producer; Sub on the group and on each topic of a consumer |
| PullMessage, SyncLiteSubscription | Sub on group and topic |
| UpdateOffset | Sub or Update on group and topic |
| GetOffset | Sub or Get on group and topic |
| QueryOffset | Get on the topic |

The last four the official proxy does not serve; they need what the same requests of remoting clients need.
Source: auth/authorization/builder/DefaultAuthorizationContextBuilder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thermocline.auth.actions import Action
from thermocline.auth.resources import group_resource, topic_resource
from thermocline.auth.rights import Right
from thermocline.proxy.access import RequestName
from thermocline.proxy.grpc.messages import PACKAGE, enums

__all__ = ["REQUEST_NAMES", "RIGHTS", "rights_of"]

Rights = tuple[Right, ...]

_CONSUMERS = frozenset(
    {
        enums.ClientType.PUSH_CONSUMER,
        enums.ClientType.SIMPLE_CONSUMER,
        enums.ClientType.PULL_CONSUMER,
        enums.ClientType.LITE_PUSH_CONSUMER,
        enums.ClientType.LITE_SIMPLE_CONSUMER,
    }
)


def _topic(name: str, *actions: Action) -> Right:
    return Right(topic_resource(name), actions)


def _group(name: str, *actions: Action) -> Right:
    return Right(group_resource(name), actions)


def _of_sent(request: Any) -> Rights:
    """All topics: that a batch has one topic is checked later."""
    return tuple(dict.fromkeys(_topic(each.topic.name, Action.PUB) for each in request.messages))


def _of_published(request: Any) -> Rights:
    return (_topic(request.topic.name, Action.PUB),)


def _of_route(request: Any) -> Rights:
    return (_topic(request.topic.name, Action.PUB, Action.SUB),)


def _of_consumed(request: Any) -> Rights:
    return _group(request.group.name, Action.SUB), _topic(request.topic.name, Action.SUB)


def _on_queue(*actions: Action) -> Callable[[Any], Rights]:
    """On the group of a request and the topic of its queue."""

    def rights(request: Any) -> Rights:
        return _group(request.group.name, *actions), _topic(request.message_queue.topic.name, *actions)

    return rights


def _of_group(request: Any) -> Rights:
    return (_group(request.group.name, Action.SUB),)


def _of_heartbeat(request: Any) -> Rights:
    return _of_group(request) if request.client_type in _CONSUMERS or request.group.name else ()


def _of_termination(request: Any) -> Rights:
    """A producer names no group."""
    return _of_group(request) if request.group.name else ()


def _of_queried_offset(request: Any) -> Rights:
    return (_topic(request.message_queue.topic.name, Action.GET),)


def _of_command(command: Any) -> Rights:
    if command.WhichOneof("command") != "settings":
        return ()
    settings = command.settings
    published = [_topic(topic.name, Action.PUB) for topic in settings.publishing.topics]
    if settings.WhichOneof("pub_sub") != "subscription":
        return tuple(dict.fromkeys(published))
    subscribed = [_topic(entry.topic.name, Action.SUB) for entry in settings.subscription.subscriptions]
    return tuple(dict.fromkeys([_group(settings.subscription.group.name, Action.SUB), *subscribed]))


RIGHTS: Mapping[str, Callable[[Any], Rights]] = {
    "SendMessage": _of_sent,
    "RecallMessage": _of_published,
    "EndTransaction": _of_published,
    "QueryRoute": _of_route,
    "QueryAssignment": _of_consumed,
    "ReceiveMessage": _on_queue(Action.SUB),
    "AckMessage": _of_consumed,
    "ForwardMessageToDeadLetterQueue": _of_consumed,
    "ChangeInvisibleDuration": _of_consumed,
    "Heartbeat": _of_heartbeat,
    "NotifyClientTermination": _of_termination,
    "Telemetry": _of_command,
    "PullMessage": _on_queue(Action.SUB),
    "UpdateOffset": _on_queue(Action.SUB, Action.UPDATE),
    "GetOffset": _on_queue(Action.SUB, Action.GET),
    "QueryOffset": _of_queried_offset,
    "SyncLiteSubscription": _of_consumed,
}
"""What each RPC needs, by its name."""

_MESSAGES = {"Telemetry": "TelemetryCommand"}
REQUEST_NAMES: Mapping[str, RequestName] = {
    name: RequestName(f"{PACKAGE}.{_MESSAGES.get(name, f'{name}Request')}", name) for name in RIGHTS
}
"""What each RPC is called: in white lists by its message."""


def rights_of(name: str, request: Any) -> Rights:
    """Return what a request of an RPC needs."""
    return RIGHTS[name](request)
