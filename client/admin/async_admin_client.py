"""AsyncAdminClient: everything that operators do, as methods. `AdminClient` is its blocking half.

    async with AsyncAdminClient(namesrv="127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queue_nums=8)
        for row in await admin.group_progress("billing"):
            print(row.queue, row.lag)

Works with Thermocline and with Apache RocketMQ brokers; methods of the cold tier only with the former.
"""

from __future__ import annotations

from thermocline.client.admin.broker_administration import BrokerAdministration
from thermocline.client.admin.cold_read_limits import ColdReadLimits
from thermocline.client.admin.group_administration import GroupAdministration
from thermocline.client.admin.hand_off_administration import HandOffAdministration
from thermocline.client.admin.member_administration import MemberAdministration
from thermocline.client.admin.message_trace import MessageTraces
from thermocline.client.admin.replica_administration import ReplicaAdministration
from thermocline.client.admin.static_topic_administration import StaticTopicAdministration
from thermocline.client.admin.topic_administration import TopicAdministration
from thermocline.client.admin.traffic_statistics import TrafficStatistics
from thermocline.client.admin.ttl_administration import TtlAdministration
from thermocline.client.admin.user_administration import UserAdministration

__all__ = ["AsyncAdminClient"]


class AsyncAdminClient(
    TopicAdministration,
    StaticTopicAdministration,
    GroupAdministration,
    HandOffAdministration,
    MemberAdministration,
    MessageTraces,
    BrokerAdministration,
    TrafficStatistics,
    ColdReadLimits,
    TtlAdministration,
    UserAdministration,
    ReplicaAdministration,
):
    """See the module; each base class is one family of methods."""
