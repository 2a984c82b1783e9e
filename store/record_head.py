"""The head of a log record as the fast path packs it: IPv4 hosts, and one constant for what a whole chunk shares.

The same bytes as `message_record.HEAD`, of which this is the view of a writer in a hurry.
"""

import struct

from thermocline.remoting.message_record import HEAD

CHUNK_FIELDS = struct.Struct(
    ">8s"  # born host, IPv4
    "q"  # store timestamp, ms
    "8s"  # store host, IPv4
    "i"  # reconsume times
    "q"  # prepared transaction offset
)
RECORD_HEAD = struct.Struct(
    ">i"  # record size, bytes
    "i"  # magic
    "i"  # body checksum
    "i"  # queue id
    "i"  # flag
    "q"  # queue offset
    "q"  # physical offset
    "i"  # system flag
    "q"  # born timestamp, ms
    f"{CHUNK_FIELDS.size}s"
    "i"  # body size, bytes
)
assert RECORD_HEAD.size == HEAD.size, "the same fields as message_record.HEAD"
