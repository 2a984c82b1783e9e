"""Index: index files, which find messages by key."""

from thermocline.store.index.index_file import IndexHeader
from thermocline.store.index.index_service import IndexService

__all__ = ["IndexHeader", "IndexService"]
