"""Recovery: a broker that lost its disk comes back from its bucket (`--recover-from`); a slave continues a ledger."""

from thermocline.broker.recovery.directory import has_messages

__all__ = ["has_messages"]
