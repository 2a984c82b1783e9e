"""Recovery: a broker that lost its disk comes back from its bucket (`thermocline broker --recover-from`)."""

from thermocline.broker.recovery.directory import has_messages

__all__ = ["has_messages"]
