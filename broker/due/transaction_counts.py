"""Transaction counts: how many transactions of each topic are open.

File: config/transactionMetrics, Apache RocketMQ's:
    {"dataVersion":{...},"transactionCount":{topic:{"count":2,"timeStamp":...}}}

The counts of the file are what RocketMQ continues with. Here a start counts what is open, since a crash may have left
the file behind; topics in it stay, with 0, until they are deleted. Written every now and then, and at the stop.
Owner: the hot process's event loop.
Source: broker/transaction/TransactionMetrics.java, Apache RocketMQ 5.3.
"""

from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.state_files import VersionCounter
from thermocline.remoting import json_dialect
from thermocline.remoting.bodies import DataVersion
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.store.state import TableChanges

FILE_NAME = "transactionMetrics"


class _Count(msgspec.Struct):
    count: int = 0
    time_stamp: int = msgspec.field(default=0, name="timeStamp")


class _CountsFile(msgspec.Struct, rename="camel"):
    transaction_count: dict[str, _Count] = {}
    data_version: DataVersion | None = None


class TransactionCounts:
    """Open transactions by topic."""

    def __init__(self, *, clock: Callable[[], int], has_topic: Callable[[str], bool]) -> None:
        """`has_topic`: whether there is such a topic; of others only what is open is kept."""
        self._has_topic = has_topic
        self._clock = clock
        self._counts: dict[str, _Count] = {}
        self._version = VersionCounter(clock)
        self.changes = TableChanges()

    def add(self, topic: str, change: int) -> None:
        """So many more are open."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = _Count()
        count.count += change
        count.time_stamp = self._clock()
        self._version.bump()
        self.changes.add()

    def of(self, topic: str) -> int:
        """How many are open."""
        count = self._counts.get(topic)
        return 0 if count is None else count.count

    def start_with(self, counts: Mapping[str, int]) -> None:
        """These are open, and no others."""
        for topic in self._counts.keys() | counts.keys():
            change = counts.get(topic, 0) - self.of(topic)
            if change:
                self.add(topic, change)

    def encode(self) -> bytes:
        """The file's content. Topics that are gone, with nothing open, are dropped."""
        self._counts = {topic: count for topic, count in self._counts.items() if count.count or self._has_topic(topic)}
        return b'{"dataVersion":%s,"transactionCount":%s}' % (
            self._version.text(),
            msgspec.json.encode(self._counts, order="sorted"),
        )

    def load(self, data: bytes | None) -> None:
        """Load a file's content.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        if data is None:
            return
        try:
            file = json_dialect.loads_as(data, _CountsFile)
        except InvalidRequestError as error:
            raise CorruptDataError("transaction counts cannot be read", file=FILE_NAME, reason=str(error)) from error
        self._counts = file.transaction_count
        if file.data_version is not None:
            self._version.current = file.data_version
