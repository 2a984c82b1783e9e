"""Release ordinals: the number that stands for a release of RocketMQ in headers and lists of clients.

They are the places in an enumeration: each release from 5.0.0 on has two (snapshot, release), a minor version ten
releases. Clients by gRPC say their version as a text.
Source: MQVersion.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import re

from thermocline.remoting.command import VERSION

__all__ = ["release_ordinal"]

ORDINAL_5_0_0 = 413

_VERSION = re.compile(r"[vV]?5[._](?P<minor>\d)[._](?P<patch>\d)(?!\d)")


def release_ordinal(version: str) -> int:
    """Return the ordinal of a version text such as "5.2.0"; of any other text that of 5.5.0.

    RocketMQ's proxy says its own release of every client.
    """
    match = _VERSION.match(version)
    if match is None:
        return VERSION
    return ORDINAL_5_0_0 + 20 * int(match["minor"]) + 2 * int(match["patch"])
