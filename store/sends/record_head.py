"""The head of a log record as the fast path packs it: IPv4 hosts, and one constant for what a whole chunk shares.

The same bytes as `message_record.HEAD`: what all records of a received chunk share, from the born host to the prepared
transaction offset, is packed once (`CHUNK_FIELDS`) and stands in `RECORD_HEAD` as one field.
"""

import struct

from thermocline.remoting.records.message_record import HEAD
from thermocline.remoting.records.record_layout import fields_format

CHUNK_FIELDS = struct.Struct(">" + fields_format("born_host", "prepared_transaction_offset"))
RECORD_HEAD = struct.Struct(
    ">"
    + fields_format("size_bytes", "born_timestamp_ms")
    + f"{CHUNK_FIELDS.size}s"
    + fields_format("body_bytes", "body_bytes")
)
assert RECORD_HEAD.size == HEAD.size, "the same fields as message_record.HEAD"
