"""Garbage: objects that no catalog names are deleted, and the proof that nothing else is."""

from thermocline.tiered.garbage.garbage import GarbageCollector, GarbageReport
from thermocline.tiered.garbage.garbage_rounds import COLLECTIONS_PER_GRACE, GarbageRounds
from thermocline.tiered.garbage.ttl_proof import bucket_evidence

__all__ = ["COLLECTIONS_PER_GRACE", "GarbageCollector", "GarbageReport", "GarbageRounds", "bucket_evidence"]
