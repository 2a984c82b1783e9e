"""SendTemplate: writes the frames of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320) requests from a template.

The headers of all sends to one queue differ in six values: system flag, born timestamp, user flag, properties, command
flag and opaque. `render` encodes the other members once for each queue. `fill` inserts the six values for each send;
it takes 1 us, a sixth of the time for encoding a header object. The members are in the official client's order.
Letters of the fields (SendMessageRequestHeaderV2.java, Apache RocketMQ 5.3):

    a producerGroup   b topic   c defaultTopic   d defaultTopicQueueNums   e queueId   f sysFlag   g bornTimestamp
    h flag   i properties   j reconsumeTimes   k unitMode   l maxReconsumeTimes   m batch   n brokerName

With credentials a frame is signed, and the signature is a seventh value. The signed content is the values of all
fields in the order of their names (AccessKey, SecurityToken, a to n), then the body (request_signature.py). Only f to i
and the body differ between sends: `render` joins the values before f, and those behind i, once.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from thermocline.remoting.command import VERSION
from thermocline.remoting.frames import FRAME_HEAD
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import ACCESS_KEY, SECURITY_TOKEN, Credentials, SigningKey

__all__ = ["SendTemplate"]

HEADER = (
    b'%b%d","g":"%d","h":"%d","i":%b%b%b%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
    b'"version":' + str(VERSION).encode() + b"}"
)

EXT_FIELDS_END = b'},"flag":'
SIGNED_EXT_FIELDS_END = b',"Signature":"%b"},"flag":'
SIGNED_CONTENT = b"%b%d%d%d%b%b%b"

encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTemplate:
    """The parts of the header, and of the signed content, that are the same in all sends to one queue."""

    before_sys_flag: bytes
    """The header up to the value of f."""
    after_properties: bytes
    """The header behind the value of i, up to the last ext field before the signature."""
    key: SigningKey | None = None
    """None: frames are not signed."""
    signed_before: bytes = b""
    """The signed values before f."""
    signed_after: bytes = b""
    """The signed values behind i."""

    @classmethod
    def render(
        cls,
        *,
        group: str,
        topic: str,
        broker_name: str,
        queue_id: int,
        default_topic: str,
        default_topic_queue_nums: int,
        batch: bool = False,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
        credentials: Credentials | None = None,
    ) -> SendTemplate:
        """Make the template of all sends with these values."""
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        max_reconsume_member = "" if max_reconsume_times is None else f'"l":"{max_reconsume_times}",'
        batch_text = "true" if batch else "false"
        credential_members, credential_values = "", ""
        if credentials is not None:
            credential_members = f',"{ACCESS_KEY}":{_quoted(credentials.access_key)}'
            if credentials.security_token:
                credential_members += f',"{SECURITY_TOKEN}":{_quoted(credentials.security_token)}'
            credential_values = credentials.access_key + credentials.security_token
        values_j_k_l = (reconsume_times, "false", "" if max_reconsume_times is None else max_reconsume_times)
        return cls(
            before_sys_flag=(
                f'{{"code":{int(code)},"extFields":{{"a":{_quoted(group)},"b":{_quoted(topic)},'
                f'"c":{_quoted(default_topic)},"d":"{default_topic_queue_nums}","e":"{queue_id}","f":"'
            ).encode(),
            after_properties=(
                f',"j":"{reconsume_times}","k":"false",{max_reconsume_member}"m":"{batch_text}",'
                f'"n":{_quoted(broker_name)}{credential_members}'
            ).encode(),
            key=credentials.key if credentials is not None else None,
            signed_before=(
                f"{credential_values}{group}{topic}{default_topic}{default_topic_queue_nums}{queue_id}".encode()
            ),
            signed_after="".join(map(str, (*values_j_k_l, batch_text, broker_name))).encode(),
        )

    def fill(
        self,
        *,
        sys_flag: int,
        born_timestamp_ms: int,
        flag: int,
        properties_text: str,
        body: bytes,
        opaque: int,
        command_flag: int = 0,
    ) -> bytes:
        """Return one whole frame, its length included. `command_flag` 2: one-way, the broker does not answer."""
        ext_fields_end = EXT_FIELDS_END
        if self.key is not None:
            values = (self.signed_before, sys_flag, born_timestamp_ms, flag, properties_text.encode())
            content = SIGNED_CONTENT % (*values, self.signed_after, body)
            ext_fields_end = SIGNED_EXT_FIELDS_END % self.key.signature(content)
        header = HEADER % (
            self.before_sys_flag,
            sys_flag,
            born_timestamp_ms,
            flag,
            encode_json(properties_text),
            self.after_properties,
            ext_fields_end,
            command_flag,
            opaque,
        )
        return FRAME_HEAD.pack(4 + len(header) + len(body), len(header)) + header + body


def _quoted(text: str) -> str:
    return encode_json(text).decode()
