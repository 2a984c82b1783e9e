"""Stores: the object store that a URL names, opened."""

from thermocline.tiered.stores.object_store_url import (
    DirectoryAccess,
    ObjectStoreOptions,
    check_store_url,
    is_directory_url,
    is_s3_url,
    open_object_store,
    parse_s3_url,
    put_requests_of,
)

__all__ = [
    "DirectoryAccess",
    "ObjectStoreOptions",
    "check_store_url",
    "is_directory_url",
    "is_s3_url",
    "open_object_store",
    "parse_s3_url",
    "put_requests_of",
]
