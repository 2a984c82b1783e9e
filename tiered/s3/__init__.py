"""Object store in an S3 bucket, or in whatever speaks S3's protocol. The client is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

from thermocline.tiered.s3.s3_options import S3Options

if TYPE_CHECKING:
    from thermocline.tiered.s3.s3_object_store import S3ObjectStore

__all__ = ["S3ObjectStore", "S3Options"]


def __getattr__(name: str) -> object:
    if name != "S3ObjectStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("thermocline.tiered.s3.s3_object_store").S3ObjectStore
