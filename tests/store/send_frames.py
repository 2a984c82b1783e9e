"""Send requests as official clients write them: whole frames, for tests of the fast path and of the send processor."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.records.batch import BatchMessage, encode_batch

FRAME_HEAD = struct.Struct(">ii")  # signed, so that a test can send any header word
SEND_MESSAGE = 10
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
"""The names of SEND_MESSAGE for the letters of the later codes."""

UNIQUE_KEY = "0A070001683A4E0E2F2A68B44EAA"


def unique_key(number: int) -> str:
    """A unique id as the Java client makes it."""
    return f"{UNIQUE_KEY}{number & 0xFFFF:04X}"


def properties_text(properties: Mapping[str, str]) -> str:
    """The property text of a message."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def json_frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """A frame with a JSON header, its length word included."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return FRAME_HEAD.pack(4 + len(text) + len(body), len(text)) + text + body


def send_frame(
    *,
    topic: str = "TopicA",
    queue_id: int = 0,
    body: bytes = b"body",
    properties: Mapping[str, str] | str | None = None,
    opaque: int = 1,
    code: int = 310,
    flag: int = 0,
    binary: bool = False,
    **fields: str,
) -> bytes:
    """A send, SEND_MESSAGE_V2 by default; `fields` are header letters that replace the usual ones."""
    if properties is None:
        properties = {"UNIQ_KEY": unique_key(opaque), "WAIT": "true", "TAGS": "TagA"}
    text = properties if isinstance(properties, str) else properties_text(properties)
    ext_fields = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1795247847083",
        "h": "0",
        "i": text,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    } | fields
    if code == SEND_MESSAGE:
        ext_fields = {LONG_NAMES[letter]: value for letter, value in ext_fields.items()}
    if binary:
        return RemotingCommand(
            code=code,
            opaque=opaque,
            flag=flag,
            language=LanguageCode.JAVA,
            ext_fields=ext_fields,
            body=body,
            serialize_type=SerializeType.ROCKETMQ,
        ).encode()
    header = {
        "code": code,
        "extFields": ext_fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    return json_frame(header, body)


def batch_frame(
    messages: Sequence[BatchMessage],
    *,
    opaque: int = 1,
    queue_id: int = 0,
    code: int = 320,
    binary: bool = False,
    properties: Mapping[str, str] | str | None = None,
    **fields: str,
) -> bytes:
    """SEND_BATCH_MESSAGE."""
    if properties is None:
        properties = {"UNIQ_KEY": unique_key(opaque), "WAIT": "true"}
    letters = {"m": "true"} | fields
    return send_frame(
        code=code,
        body=encode_batch(messages),
        properties=properties,
        opaque=opaque,
        queue_id=queue_id,
        binary=binary,
        **letters,
    )
