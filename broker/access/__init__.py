"""Access: access control in the broker, on single requests and on whole chunks of the message path."""

from thermocline.broker.access.chunk_guard import ChunkGuard
from thermocline.broker.access.request_guard import RequestGuard

__all__ = ["ChunkGuard", "RequestGuard"]
