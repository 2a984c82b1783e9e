"""Settings of the cold tier, checked once where the process starts."""

from dataclasses import dataclass, field, fields
from enum import StrEnum

from thermocline.remoting.errors import InvalidRequestError
from thermocline.store.files import Readers
from thermocline.tiered.cost import requests_per_hour_min
from thermocline.tiered.ledger import FencingMode
from thermocline.tiered.segments import FRAME_RAW_BYTES_MAX
from thermocline.tiered.stores import check_store_url
from thermocline.tiered.wrappers import StoreLimits

KIB, MIB, GIB = 1024, 1024 * 1024, 1024 * 1024 * 1024
NONE_URL = "none"
RESERVE_BYTES_MIN = 64 * MIB
"""A few rounds of the store's tick at the highest rate: it is looked at once in a tick."""


class FullPolicy(StrEnum):
    """What becomes of messages that fill the local disk while the bucket does not take them."""

    REFUSE = "refuse"
    """Sends are refused: nothing that was acknowledged is lost."""
    DROP_OLDEST = "drop-oldest"
    """The oldest go, and are declared lost by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """All settings of a broker's cold tier. Sizes in bytes, times in milliseconds.

    Raises:
        InvalidRequestError: A value is outside its range.
    """

    cold_url: str = field(default=NONE_URL, repr=False)  # may hold keys
    """file:///directory, s3://bucket/prefix?endpoint=..., memory://name, or none (no cold tier)."""
    fencing: str = FencingMode.CONDITIONAL.value
    """How it is made sure that one broker commits: conditional (the store arbitrates) or ballots (see fencing.py)."""
    directory_readers: str = Readers.OWNER.value
    """Who may read a file:// cold tier: owner (its user alone), group or all; what is there follows at the start."""
    segment_bytes: int = 128 * MIB
    """Raw bytes at which a topic's waiting records are sealed."""
    seal_age_ms: int = 114_000
    """Age of the oldest waiting record at which a topic is sealed; sooner by what rounds take beyond a twentieth of it
    (seal_lead.py). With that twentieth it is what a lost disk can cost: less than two minutes. Not shorter, so that a
    further TTL class costs nine PUTs a GiB at 1 MiB/s."""
    frame_bytes: int = 1 * MIB
    """Raw bytes of one independently readable zstd frame."""
    compression_level: int = 3
    sweep_interval_ms: int = 60_000
    """How often what TTL dropped leaves the catalog."""
    grace_ms: int = 24 * 3_600_000
    """How long a ledger version, and the objects that only it names, stay readable."""
    cache_bytes: int = 144 * MIB
    """Decompressed frames kept for cold reads, all groups together."""
    index_bytes: int = 122 * MIB
    """Bloom pages of index objects kept in memory, 9 bits a key: a key that is not there then costs no request."""
    read_ahead_frames_max: int = 8
    upload_concurrency_max: int = 4
    upload_bytes_per_second_max: int = 0
    """Bytes put into the store in a second, on average; 0 is no limit."""
    upload_requests_per_second_max: int = 0
    """Puts and deletes in a second; 0 is no limit."""
    read_bytes_per_second_max: int = 0
    """Bytes read from the store in a second, on average; 0 is no limit."""
    read_requests_per_second_max: int = 0
    """Gets, heads and listings in a second; 0 is no limit."""
    read_budget_bytes: int = 16 * MIB
    """Most bytes of parts of objects that are on their way from the store; further reads wait."""
    upload_budget_bytes: int = 96 * MIB
    """Most memory that segments, packs and merges take while they are written and uploaded; further ones wait."""
    spool_bytes: int = 1024 * MIB
    """Most raw bytes of segments, packs and merges that are on local disk at a time; further ones wait."""
    full_policy: str = FullPolicy.REFUSE.value
    """When the bucket has been away for longer than the disk can hold, for topics that say nothing of their own."""
    account_interval_ms: int = 1_000
    requests_per_hour: int = 0
    """Budget of requests that write or list, an hour; beyond it seal ages are widened. 0: no budget."""
    pack_bytes: int = 256 * MIB
    """Raw bytes of one pack: what is due by age from small topics goes up in packs, one object for each TTL class."""
    merge_fan_in: int = 16
    """Packs of one level at which they are merged: a small topic is in about so many packs per level."""
    merge_bytes_per_second: int = 32 * MIB
    """How much merging may write; 0 merges nothing, and a small topic's history stays spread over ever more packs."""
    state_interval_ms: int = 58_000
    """How often topics, groups and offsets are saved in the bucket, if they have changed: by a snapshot, or by the
    entry of a round. They are at most a minute old, two seconds of which are left for saving them. Two of these are a
    little more than a seal age, so that each round's entry saves a snapshot."""
    reserve_bytes: int = 0
    """How far the log may run ahead of the last saved state while the bucket is away; 0: as far as the disk is large.
    A recovered queue skips as many offsets as messages would fit in there."""
    scrub_bytes_per_day: int = 64 * GIB
    """How much is read in a day by itself to find damaged objects, at most; 0 reads nothing."""
    follow_interval_ms: int = 1_000
    """How often a read-only broker looks for what its source has committed; up to five times as long while idle."""

    def __post_init__(self) -> None:
        minimums = {
            "segment_bytes": 64 * KIB,
            "seal_age_ms": 100,
            "frame_bytes": 4 * KIB,
            "sweep_interval_ms": 100,
            "grace_ms": 0,
            "cache_bytes": 1 * MIB,
            "index_bytes": 0,
            "read_ahead_frames_max": 1,
            "upload_concurrency_max": 1,
            "upload_bytes_per_second_max": 0,
            "upload_requests_per_second_max": 0,
            "read_bytes_per_second_max": 0,
            "read_requests_per_second_max": 0,
            "read_budget_bytes": 1 * MIB,
            "upload_budget_bytes": 1 * MIB,
            "spool_bytes": 1 * MIB,
            "account_interval_ms": 10,
            "pack_bytes": 64 * KIB,
            "merge_fan_in": 2,
            "merge_bytes_per_second": 0,
            "state_interval_ms": 100,
            "scrub_bytes_per_day": 0,
            "follow_interval_ms": 50,
        }
        for item in fields(self):
            minimum = minimums.get(item.name)
            value = getattr(self, item.name)
            if minimum is not None and value < minimum:
                raise _too_small(item.name, value, minimum)
        if self.is_enabled:
            try:
                check_store_url(self.cold_url)
            except InvalidRequestError as error:
                raise InvalidRequestError(error.message, **{**error.context, "setting": "coldUrl"}) from error
        if self.fencing not in list(FencingMode):
            raise InvalidRequestError(
                f"coldFencing is {' or '.join(FencingMode)}", setting="coldFencing", value=self.fencing
            )
        if self.directory_readers not in list(Readers):
            raise InvalidRequestError(
                f"coldDirectoryReaders is {', '.join(Readers)}",
                setting="coldDirectoryReaders",
                value=self.directory_readers,
            )
        if self.full_policy not in list(FullPolicy):
            raise InvalidRequestError(
                f"coldFullPolicy is {' or '.join(FullPolicy)}", setting="coldFullPolicy", value=self.full_policy
            )
        least_requests = requests_per_hour_min(self.state_interval_ms)
        if self.requests_per_hour and self.requests_per_hour < least_requests:
            raise _too_small("requests_per_hour", self.requests_per_hour, least_requests)
        if self.reserve_bytes and self.reserve_bytes < RESERVE_BYTES_MIN:
            raise _too_small("reserve_bytes", self.reserve_bytes, RESERVE_BYTES_MIN)
        if not 1 <= self.compression_level <= 19:
            raise InvalidRequestError(
                "coldCompressionLevel is 1 to 19", setting="coldCompressionLevel", value=self.compression_level
            )
        if self.frame_bytes > FRAME_RAW_BYTES_MAX:
            raise InvalidRequestError(
                f"coldFrameBytes must be at most {FRAME_RAW_BYTES_MAX}, which readers take",
                setting="coldFrameBytes",
                value=self.frame_bytes,
            )
        if self.frame_bytes > self.segment_bytes:
            raise InvalidRequestError(
                "a frame is larger than a segment (coldSegmentBytes)", setting="coldFrameBytes", value=self.frame_bytes
            )

    @property
    def fencing_mode(self) -> FencingMode:
        """`fencing`, checked."""
        return FencingMode(self.fencing)

    @property
    def limits(self) -> StoreLimits:
        """What passes to and from the store in a second."""
        return StoreLimits(
            write_bytes_per_second=self.upload_bytes_per_second_max,
            write_requests_per_second=self.upload_requests_per_second_max,
            read_bytes_per_second=self.read_bytes_per_second_max,
            read_requests_per_second=self.read_requests_per_second_max,
        )

    @property
    def is_enabled(self) -> bool:
        """True when there is a cold tier."""
        return self.cold_url != NONE_URL


def property_name(field_name: str) -> str:
    """The property of a field: `coldSegmentBytes` of `segment_bytes`."""
    first, *rest = field_name.removeprefix("cold_").split("_")
    return "cold" + "".join(word.capitalize() for word in (first, *rest))


def _too_small(field_name: str, value: int, least: int) -> InvalidRequestError:
    name = property_name(field_name)
    return InvalidRequestError(f"{name} must be at least {least}", setting=name, value=value)
