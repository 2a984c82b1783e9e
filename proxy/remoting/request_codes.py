"""Which requests of remoting clients a proxy serves, and what says where each one goes.

    the NameServer       a topic's route; the proxy stands in it for every broker
    one broker           the broker that the request names: field `bname`, in one-letter headers `n`
    one broker, by body  queue locks: the broker of their queues
    every broker         heartbeats and what ends them: the brokers of the routes that this connection was given, of
                         the topics in its heartbeat, and of its requests
    any broker           who else consumes, and tests of a subscription: the brokers that heartbeats go to

RocketMQ's proxy serves OFFICIAL alone; clients reach the others only at a broker. Here they pass, too: official clients
send them in the ordinary course of their work. Administration does not pass: mqadmin asks the brokers themselves.
Source: proxy/remoting/RemotingProtocolServer.java, activity/*.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.request_code import RequestCode

__all__ = [
    "ANY_BROKER",
    "BEYOND_OFFICIAL",
    "BY_BROKER_NAME",
    "BY_LOCKED_QUEUES",
    "EVERY_BROKER",
    "LONG_POLLS",
    "NAME_SERVER",
    "SENDS",
    "SENDS_WITH_LETTERS",
]

NAME_SERVER = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC})
SENDS_WITH_LETTERS = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
"""What stores messages for consumers. A reply goes to the one client that asked."""
LONG_POLLS = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION}
)
"""Requests that a broker holds until there is something to answer."""
BEYOND_OFFICIAL = frozenset(
    {
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.NOTIFICATION,
        RequestCode.BATCH_ACK_MESSAGE,
    }
)
BY_BROKER_NAME = (
    SENDS
    | LONG_POLLS
    | BEYOND_OFFICIAL
    | {
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    }
)
BY_LOCKED_QUEUES = frozenset({RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ})
EVERY_BROKER = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
ANY_BROKER = frozenset(
    {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.CHECK_CLIENT_CONFIG,
    }
)
