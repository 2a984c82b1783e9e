"""StreamOptions: what a user may say about a streaming read, beside the options of a batch read that hold here too.

    namesrvAddr            NameServers, host:port;host:port; without them the stream ends with the cold tier
    maxBytesPerTrigger     raw bytes of records in one micro-batch, about (1g)
    maxOffsetsPerTrigger   queue offsets in one micro-batch; no bound when absent
    brokerTimeoutMs        how long a task, or a query that begins, waits for a broker that does not answer (120000)

A stream has no end, and looks at the cold tier anew for each micro-batch, so the options of a batch read that say
otherwise are refused, and so is every bound of a trigger that is none of these: see `_check_refused`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from thermocline.client.options import name_server_addresses
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.reading.source_options import ReadOptions, parse_size_bytes, read_options_from

TRIGGER_BYTES_DEFAULT = 1 << 30
BROKER_TIMEOUT_MS_DEFAULT = 120_000
OF_BATCHES = ("endingOffsets", "endingTimestamp", "snapshotVersion", "snapshotTimestamp", "snapshotPin")
_BOUNDS = ("maxBytesPerTrigger", "maxOffsetsPerTrigger")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """See the module's header. Small and picklable: it travels to every task."""

    read: ReadOptions
    name_servers: tuple[str, ...]
    """Empty for a stream of the cold tier alone."""
    trigger_bytes_max: int
    trigger_offsets_max: int | None
    broker_timeout_ms: int


def stream_options_from(options: Mapping[str, str]) -> StreamOptions:
    """Check all options of one streaming read.

    Raises:
        InvalidRequestError: An option is missing, is none of a stream, or its value is wrong; the message names it.
    """
    words = {name.lower(): value for name, value in options.items()}
    _check_refused(options)
    servers = words.get("namesrvaddr")
    try:
        addresses = () if servers is None else tuple(name_server_addresses(servers))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{servers!r} names no NameServer; write host:9876", option="namesrvAddr") from error
    size = words.get("maxbytespertrigger")
    return StreamOptions(
        read=read_options_from(options),
        name_servers=addresses,
        trigger_bytes_max=TRIGGER_BYTES_DEFAULT
        if size is None
        else parse_size_bytes(size, option="maxBytesPerTrigger"),
        trigger_offsets_max=_count(words.get("maxoffsetspertrigger"), option="maxOffsetsPerTrigger"),
        broker_timeout_ms=_count(words.get("brokertimeoutms"), option="brokerTimeoutMs") or BROKER_TIMEOUT_MS_DEFAULT,
    )


def _check_refused(options: Mapping[str, str]) -> None:
    """InvalidRequestError for what would say something about a stream and does not."""
    of_batches, bounds = ({name.lower() for name in names} for names in (OF_BATCHES, _BOUNDS))
    for name in options:
        word = name.lower()
        if word in of_batches:
            raise InvalidRequestError("a stream has no such option; it goes on from batch to batch", option=name)
        if word == "engine":
            raise InvalidRequestError("a stream has no such option; its tasks fetch by the direct engine", option=name)
        if word == "metrics":
            raise InvalidRequestError("a stream has no such option; see the query's progress", option=name)
        if word == "maxtriggerdelay" or (word.endswith("pertrigger") and word not in bounds):
            raise InvalidRequestError(
                f"a stream has no such option; its batches are bounded by {' and '.join(_BOUNDS)}, cold and live alike",
                option=name,
            )


def _count(text: str | None, *, option: str) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\s*[1-9]\d*\s*", text):
        raise InvalidRequestError(f"{text!r} is no number greater than zero", option=option)
    return int(text)
