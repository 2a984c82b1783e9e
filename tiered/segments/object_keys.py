"""Names of the objects of one broker's cold tier, and which writer's epoch a name belongs to.

    {root} = {cluster}/{broker_name}
    {root}/head-hint
    {root}/ledger/{version:020}.json
    {root}/ballots/{ballot}.json                     with coldFencing=ballots, as are
    {root}/proposals/{version:020}-{ballot}.json
    {root}/doctor/{id}-...                           what a store doctor tries out; gone when it ends
    {root}/checkpoints/{version:020}/head.json
    {root}/checkpoints/{version:020}/{bucket:03}-{epoch:010}.zst
    {root}/checkpoints/{version:020}/packs-{epoch:010}.zst
    {root}/state/{epoch:010}-{sequence:010}.json
    {root}/pins/{id}.json
    {root}/topics/{topic}/{segment_id}.log .cq .idx
    {root}/topics/{topic}/{segment_id}.pack
    {root}/packs/{ttl_class}/{pack_id}.pack
    {root}/indexes/{ttl_class}/{index_id}.index

In names of clusters, brokers and topics everything but letters, digits, `_`, `-` and inner dots is written as `=` and
two hex digits a byte; what would be longer than 200 bytes is cut and ends in `==` and a hash of the whole. No name is a
folder of another.
"""

from __future__ import annotations

import hashlib
import re

from thermocline.tiered.segments.segment_format import SegmentId

NAME_BYTES_MAX = 200
_NAME_KEPT_BYTES = 150
_ESCAPED = re.compile(rb"[^A-Za-z0-9_.-]|^\.")
_SEGMENT_NAME = re.compile(r"(\d{10})-(\d{10})\.(log|cq|idx|pack|index)")
_BUCKET_NAME = re.compile(r"(\d{3}|packs)-(\d{10})\.zst")
_STATE_NAME = re.compile(r"(\d{10})-(\d{10})\.json")


def escape_name(name: str) -> str:
    """One component of a key for any name."""
    text = _ESCAPED.sub(lambda match: b"=%02X" % match[0][0], name.encode()).decode()
    if len(text) <= NAME_BYTES_MAX:
        return text
    return f"{text[:_NAME_KEPT_BYTES]}=={hashlib.sha256(name.encode()).hexdigest()[:32]}"


class BrokerKeys:
    """All keys of one broker."""

    def __init__(self, root: str) -> None:
        assert root
        assert not root.endswith("/")
        self.root = root
        self.head_hint = f"{root}/head-hint"
        self.ledger_prefix = f"{root}/ledger/"
        self.ballots_prefix = f"{root}/ballots/"
        self.proposals_prefix = f"{root}/proposals/"
        self.doctor_prefix = f"{root}/doctor/"
        self.checkpoints_prefix = f"{root}/checkpoints/"
        self.state_prefix = f"{root}/state/"
        self.pins_prefix = f"{root}/pins/"
        self.topics_prefix = f"{root}/topics/"
        self.packs_prefix = f"{root}/packs/"
        self.indexes_prefix = f"{root}/indexes/"

    @classmethod
    def of(cls, *, cluster: str, broker_name: str) -> BrokerKeys:
        """The keys of a broker, by its names."""
        return cls(f"{escape_name(cluster)}/{escape_name(broker_name)}")

    def ledger_entry(self, version: int) -> str:
        """The entry that makes `version`."""
        return f"{self.ledger_prefix}{version:020}.json"

    def ballot(self, ballot: str) -> str:
        """The mark of a writer that has begun."""
        return f"{self.ballots_prefix}{ballot}.json"

    def proposal(self, version: int, ballot: str) -> str:
        """What a ballot proposes as the entry of `version`."""
        return f"{self.proposals_prefix}{version:020}-{ballot}.json"

    def checkpoint_head(self, version: int) -> str:
        """The object that names the buckets of the catalog at `version`."""
        return f"{self.checkpoints_prefix}{version:020}/head.json"

    def checkpoint_bucket(self, version: int, bucket: int, *, epoch: int) -> str:
        """One bucket of the catalog at `version`."""
        return f"{self.checkpoints_prefix}{version:020}/{bucket:03}-{epoch:010}.zst"

    def checkpoint_packs(self, version: int, *, epoch: int) -> str:
        """The packs of the catalog at `version`."""
        return f"{self.checkpoints_prefix}{version:020}/packs-{epoch:010}.zst"

    def state(self, *, epoch: int, sequence: int) -> str:
        """A state snapshot."""
        return f"{self.state_prefix}{epoch:010}-{sequence:010}.json"

    def state_of(self, key: str) -> tuple[int, int] | None:
        """Epoch and sequence of a state snapshot's key; None for another key."""
        match = _STATE_NAME.fullmatch(key.removeprefix(self.state_prefix))
        return (int(match[1]), int(match[2])) if match and key.startswith(self.state_prefix) else None

    def pin(self, pin_id: str) -> str:
        """A pin."""
        return f"{self.pins_prefix}{pin_id}.json"

    def segment(self, topic: str, segment_id: SegmentId) -> tuple[str, str, str]:
        """The keys of a segment's three parts when each is an object of its own: `.log`, `.cq`, `.idx`."""
        base = f"{self.topics_prefix}{escape_name(topic)}/{segment_id}"
        return f"{base}.log", f"{base}.cq", f"{base}.idx"

    def merged_segment(self, topic: str, segment_id: SegmentId) -> str:
        """The key of a segment whose three parts are one object of its own."""
        return f"{self.topics_prefix}{escape_name(topic)}/{segment_id}.pack"

    def pack(self, ttl_class: str, pack_id: SegmentId) -> str:
        """The key of a pack."""
        return f"{self.packs_prefix}{ttl_class}/{pack_id}.pack"

    def index(self, ttl_class: str, index_id: SegmentId) -> str:
        """The key of an index object."""
        return f"{self.indexes_prefix}{ttl_class}/{index_id}.index"

    def ledger_version(self, key: str) -> int | None:
        """The version of a ledger entry's key; None for another key."""
        name = key.removeprefix(self.ledger_prefix)
        number = name.removesuffix(".json")
        return int(number) if name != key and number != name and len(number) == 20 and number.isdigit() else None

    def checkpoint_part(self, key: str) -> tuple[int, int | None] | None:
        """(version, None) for a checkpoint's head, (version, epoch) for a bucket of it, None for another key."""
        version, slash, name = key.removeprefix(self.checkpoints_prefix).partition("/")
        if not key.startswith(self.checkpoints_prefix) or not slash or len(version) != 20 or not version.isdigit():
            return None
        if name == "head.json":
            return int(version), None
        match = _BUCKET_NAME.fullmatch(name)
        return (int(version), int(match[2])) if match else None


def keeps_history(key: str) -> bool:
    """Whether a key is that of an object with messages or their index, which stays until its time to live is over.

    All other objects are small and deleted within hours: the ledger's, and a store doctor's. A store doctor's keys
    return True, so that the settings for history objects are tested before there are any.
    """
    folders = key.split("/")
    return folders[2:3] in (["topics"], ["packs"], ["indexes"], ["doctor"]) or folders[0] == "doctor"


def is_pack_key(key: str) -> bool:
    """Whether a key is that of a pack of many topics."""
    folder, _, name = key.rpartition("/")
    return folder.rpartition("/")[0].endswith("/packs") and name.endswith(".pack")


def segment_id_of(key: str) -> SegmentId | None:
    """The id in the name of a segment's part, a pack or an index object; None for another key."""
    match = _SEGMENT_NAME.fullmatch(key.rpartition("/")[2])
    return SegmentId(int(match[1]), int(match[2])) if match else None
