"""MessagingService: the RPCs by their paths.

SyncLiteSubscription is checked as the official proxy checks it, then refused: there are no light topics here, and the
code is that of a proxy whose brokers do not know them.
"""

from __future__ import annotations

from typing import Any

from thermocline.proxy.grpc.calls import Method, RpcCall
from thermocline.proxy.grpc.messages import SERVICE, Code, enums, messages
from thermocline.proxy.grpc.service.acknowledging import Acknowledging
from thermocline.proxy.grpc.service.application import Application, unary
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.offsets import Offsets
from thermocline.proxy.grpc.service.receiving import Receiving
from thermocline.proxy.grpc.service.routes import Routes
from thermocline.proxy.grpc.service.sending import Sending
from thermocline.proxy.grpc.service.statuses import CodeError
from thermocline.proxy.grpc.service.telemetry import Telemetry
from thermocline.proxy.grpc.service.transactions import Transactions
from thermocline.proxy.grpc.service.validation import check_group_name, check_lite_topic, check_topic_name

__all__ = ["service_methods"]


async def _sync_lite_subscription(context: RequestContext, call: RpcCall, request: Any) -> Any:
    check_topic_name(request.topic.name)
    check_group_name(request.group.name)
    if request.action == enums.LiteSubscriptionAction.PARTIAL_ADD:
        for lite_topic in request.lite_topic_set:
            check_lite_topic(lite_topic)
    raise CodeError(Code.NOT_IMPLEMENTED, "there are no light topics here")


def service_methods(app: Application, transactions: Transactions) -> dict[str, Method]:
    """Return the RPCs by path."""
    routes, sending, acknowledging = Routes(app), Sending(app), Acknowledging(app)
    telemetry, offsets = Telemetry(app), Offsets(app)
    served = {
        "QueryRoute": routes.query_route,
        "QueryAssignment": routes.query_assignment,
        "Heartbeat": telemetry.heartbeat,
        "NotifyClientTermination": telemetry.notify_client_termination,
        "SendMessage": sending.send_message,
        "RecallMessage": sending.recall_message,
        "EndTransaction": transactions.end_transaction,
        "AckMessage": acknowledging.ack_message,
        "ChangeInvisibleDuration": acknowledging.change_invisible_duration,
        "ForwardMessageToDeadLetterQueue": acknowledging.forward_message,
        "UpdateOffset": offsets.update_offset,
        "GetOffset": offsets.get_offset,
        "QueryOffset": offsets.query_offset,
        "SyncLiteSubscription": _sync_lite_subscription,
    }
    methods = [
        unary(app, name, getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response"), serve)
        for name, serve in served.items()
    ]
    methods += [Receiving(app).method(), telemetry.method(), offsets.pull_method()]
    return {f"/{SERVICE}/{method.name}": method for method in methods}
