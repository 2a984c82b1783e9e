"""Object store in memory, for tests and for one process that wants no files."""

from thermocline.tiered.stores.memory.memory_object_store import MemoryObjectStore

__all__ = ["MemoryObjectStore"]
