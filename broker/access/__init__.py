"""Access: access control in the broker, before the dispatcher and on the message path."""

from thermocline.broker.access.message_guard import MessageGuard
from thermocline.broker.access.request_guard import RequestGuard

__all__ = ["MessageGuard", "RequestGuard"]
