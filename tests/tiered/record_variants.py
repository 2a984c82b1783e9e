"""Every kind of record that a commit log may hold, for the golden corpus: long topic names, IPv6 hosts, compressed
bodies, batches, and the fields that plain messages leave at zero.

Compressed bodies are written out: another release of a compressor must not change what is pinned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.records.sys_flag import (
    COMPRESSED,
    COMPRESSION_SHIFT,
    INNER_BATCH,
    MULTI_TAGS,
    NEED_UNWRAP,
    TRANSACTION_COMMIT,
    CompressionType,
)
from thermocline.remoting.string_hash import tags_code

LONG_TOPIC = "%RETRY%" + "long-group-" * 18
"""Of 205 bytes: V2 records, and a name that an object's key cuts."""
V4_HOST = ("10.1.2.3", 10911)
V6_HOST = ("2001:db8::10:1", 10911)
V6_CLIENT = ("fe80::1:2:3", 51_234)
PLAIN_BODY = b"a body that a producer compressed, " * 6
COMPRESSED_BODIES = {
    CompressionType.LZ4: bytes.fromhex(
        "04224d186840d200000000000000782e000000ff146120626f6479207468617420612070726f647563657220636f6d707265737365642c"
        "20230097507365642c2000000000"
    ),
    CompressionType.ZSTD: bytes.fromhex(
        "28b52ffd20d265010034026120626f6479207468617420612070726f647563657220636f6d707265737365642c20010063194a3d01"
    ),
    CompressionType.ZLIB: bytes.fromhex(
        "785e4b5448ca4fa95428c9482c5148542828ca4f294d4e2d5248cecf2d284a2d2e4e4dd1010a0f29250041994be5"
    ),
}
THREE_MESSAGES = encode_batch(
    BatchMessage(b"message %d of an inner batch" % number, b"TAGS\x01inner\x02", flag=number) for number in range(3)
)
TWO_MESSAGES = encode_batch(
    BatchMessage(b"message %d of a compressed inner batch" % number, b"TAGS\x01inner\x02") for number in range(2)
)
COMPRESSED_TWO_MESSAGES = bytes.fromhex(
    "28b52ffd208c15020044030000004600256d6573736167652030206f66206120636f6d7072657373656420696e6e657220626174636800"
    "0b544147530102310400009224f06dcdabc8e00d"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One message in one of two queues; `fields` are those of `encode_record`. `is_same_send`: of a batch, so no time
    passes after it."""

    name: str
    queue_id: int
    tag: str | None = None
    keys: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    is_same_send: bool = False

    @property
    def unique_key(self) -> str:
        """Its id; every one has another."""
        return self.name.upper().replace(" ", "-")

    def record(self, *, topic: str, queue_offset: int, physical_offset: int, now_ms: int) -> bytes:
        """The record at its place in the log."""
        fields = dict(self.fields)
        sys_flag = fields.get("sys_flag", 0)
        properties = {"UNIQ_KEY": self.unique_key}
        if self.keys:
            properties["KEYS"] = " ".join(self.keys)
        if self.tag is not None:
            properties["TAGS"] = self.tag
        if sys_flag & INNER_BATCH:
            properties |= {"INNER_NUM": str(fields.pop("inner_count")), "INNER_BASE": str(queue_offset)}
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        defaults = {"body": self.name.encode(), "born_host": V4_HOST, "store_host": V4_HOST, "properties_text": text}
        return encode_record(
            topic=topic,
            queue_id=self.queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=now_ms - 5,
            store_timestamp_ms=now_ms,
            **defaults | fields,
        )

    @property
    def tags_code(self) -> int:
        """What its queue's unit holds."""
        return tags_code(self.tag)


def _variants() -> list[Variant]:
    compressed = [
        Variant(
            name=f"compressed by {kind.name.lower()}",
            queue_id=number % 2,
            tag="packed",
            keys=("shared", f"c{kind}"),
            fields={"body": body, "sys_flag": COMPRESSED | kind << COMPRESSION_SHIFT},
        )
        for number, (kind, body) in enumerate(COMPRESSED_BODIES.items())
    ]
    batch = [
        Variant(name=f"batch {number}", queue_id=0, tag="batch", keys=("shared",), is_same_send=number < 3)
        for number in range(4)
    ]
    return [
        Variant(name="plain", queue_id=0, tag="plain", keys=("shared", "shared", "zwölf")),
        Variant(name="born at ipv6", queue_id=0, tag="v6", keys=("shared",), fields={"born_host": V6_CLIENT}),
        Variant(name="stored at ipv6", queue_id=1, tag="v6", fields={"store_host": V6_HOST}),
        Variant(
            name="ipv6 only",
            queue_id=1,
            tag="v6",
            keys=("shared",),
            fields={"born_host": V6_CLIENT, "store_host": V6_HOST, "body": b""},
        ),
        *compressed,
        Variant(
            name="compressed by a client before 5",
            queue_id=1,
            fields={"body": COMPRESSED_BODIES[CompressionType.ZLIB], "sys_flag": COMPRESSED, "born_host": V6_CLIENT},
        ),
        *batch,
        Variant(
            name="committed",
            queue_id=1,
            tag="transaction",
            fields={"sys_flag": TRANSACTION_COMMIT | MULTI_TAGS, "prepared_transaction_offset": 77, "flag": -3},
        ),
        Variant(name="consumed again", queue_id=0, fields={"reconsume_times": 15, "flag": 2**31 - 1}),
        Variant(name="nothing in it", queue_id=1, fields={"body": b"", "properties_text": b""}),
        # Last of their queues: they stand for more offsets than the one that they have.
        Variant(
            name="inner batch of three",
            queue_id=0,
            tag="inner",
            keys=("shared",),
            fields={"body": THREE_MESSAGES, "sys_flag": NEED_UNWRAP | INNER_BATCH, "inner_count": 3},
        ),
        Variant(
            name="inner batch of two",
            queue_id=1,
            tag="inner",
            keys=("shared",),
            fields={
                "body": COMPRESSED_TWO_MESSAGES,
                "sys_flag": NEED_UNWRAP | INNER_BATCH | COMPRESSED | CompressionType.ZSTD << COMPRESSION_SHIFT,
                "inner_count": 2,
                "store_host": V6_HOST,
            },
        ),
    ]


VARIANTS = _variants()
