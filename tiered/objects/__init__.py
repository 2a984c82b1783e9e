"""Objects: the object store as a protocol, its errors; bounds, checked JSON and spools."""

from thermocline.tiered.objects.byte_budget import ByteBudget
from thermocline.tiered.objects.checked_json import check_json, is_sealed, seal_json
from thermocline.tiered.objects.errors import (
    AlreadyExistsError,
    EarlierCommitUnsettledError,
    ForeignLedgerError,
    FormatTooNewError,
    FrameChecksumError,
    LedgerCorruptError,
    ObjectStoreRefusedError,
    QuarantinedError,
    QueueGapError,
    SegmentFormatError,
    StateCorruptError,
    StateTooNewError,
    UnfitStoreError,
    UntrustedStoreError,
    VersionExpiredError,
)
from thermocline.tiered.objects.masked_urls import MASK, SHOWN_OPTIONS, is_masked, masked_url, without_options
from thermocline.tiered.objects.object_store import Data, ObjectInfo, ObjectStore, ObjectSuffix, check_key
from thermocline.tiered.objects.packed_rows import NUMBER_BYTES, PackedRows, dec_hook, enc_hook
from thermocline.tiered.objects.parallel import run_all
from thermocline.tiered.objects.segment_offset import OBJECT_START, SegmentOffset
from thermocline.tiered.objects.spool import Spool
from thermocline.tiered.objects.zstd_frames import decompress_frame

__all__ = [
    "MASK",
    "NUMBER_BYTES",
    "OBJECT_START",
    "SHOWN_OPTIONS",
    "AlreadyExistsError",
    "ByteBudget",
    "Data",
    "EarlierCommitUnsettledError",
    "ForeignLedgerError",
    "FormatTooNewError",
    "FrameChecksumError",
    "LedgerCorruptError",
    "ObjectInfo",
    "ObjectStore",
    "ObjectStoreRefusedError",
    "ObjectSuffix",
    "PackedRows",
    "QuarantinedError",
    "QueueGapError",
    "SegmentFormatError",
    "SegmentOffset",
    "Spool",
    "StateCorruptError",
    "StateTooNewError",
    "UnfitStoreError",
    "UntrustedStoreError",
    "VersionExpiredError",
    "check_json",
    "check_key",
    "dec_hook",
    "decompress_frame",
    "enc_hook",
    "is_masked",
    "is_sealed",
    "masked_url",
    "run_all",
    "seal_json",
    "without_options",
]
