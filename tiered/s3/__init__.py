"""Object store in an S3 bucket, or in whatever speaks S3's protocol. The client is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

from thermocline.tiered.s3.s3_options import CREDENTIAL_KINDS, SSE_KMS, S3Options

if TYPE_CHECKING:
    from thermocline.tiered.s3.s3_errors import translated
    from thermocline.tiered.s3.s3_object_store import S3ObjectStore

__all__ = ["CREDENTIAL_KINDS", "SSE_KMS", "S3ObjectStore", "S3Options", "translated"]

_LOADED_LATER = {"S3ObjectStore": "s3_object_store", "translated": "s3_errors"}


def __getattr__(name: str) -> object:
    module = _LOADED_LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
