"""Order table: the order info of every queue that groups pop in order.

File: config/consumerOrderInfo.json, Apache RocketMQ's:
    {"table":{"topic@group":{queueId:{order info}}}}     integer keys unquoted; both forms are read
with one member more, `popLogOffset`: the end of the log when the file was made. Order records behind it are newer than
the file (order_record.py). RocketMQ passes it over, and leaves it out when it writes the file.

Entries of topics, groups and queues that are gone are dropped (`clean`), and those that have not blocked a POP for a
day: of the latter not one with acknowledgements that the group's offset does not tell.
Belongs to the loop thread. The persister calls `encode`; entries that did not change stay encoded.
Source: ConsumerOrderInfoManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import msgspec

from thermocline.pop.order_info import OrderInfo, OrderInfoJson
from thermocline.remoting import json_dialect
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.state import TableChanges

logger = logging.getLogger(__name__)

FILE_NAME = "consumerOrderInfo.json"
IDLE_MS_MAX = 24 * 3_600_000
CLEANED_SLICE = 1_000

Key = tuple[str, str]


class _OrderFile(msgspec.Struct, rename="camel"):
    table: dict[str, dict[int, OrderInfoJson]] = {}
    pop_log_offset: PhysicalOffset | None = None


class OrderTable:
    """All order infos of one broker."""

    def __init__(self) -> None:
        self._infos: dict[Key, dict[int, OrderInfo]] = {}
        self._encoded: dict[tuple[str, str, int], bytes] = {}
        self._count = 0
        self.log_offset: PhysicalOffset | None = None
        """The log offset up to which the loaded file is complete: 0 without a file; None when RocketMQ wrote it."""
        self.changes = TableChanges()

    def __len__(self) -> int:
        return self._count

    def items(self) -> Iterator[tuple[str, str, int, OrderInfo]]:
        """All of them: topic, group, queue id, info."""
        for (topic, group), infos in self._infos.items():
            for queue_id, info in infos.items():
                yield topic, group, queue_id, info

    def find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """The last batch of a queue; None when the queue is free."""
        infos = self._infos.get((topic, group))
        return None if infos is None else infos.get(queue_id)

    def put(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        """Take a batch that was popped, or one that changed."""
        self._set(topic, group, queue_id, info)
        self._changed(topic, group, queue_id)

    def remove(self, topic: str, group: str, queue_id: int) -> None:
        """Free a queue."""
        infos = self._infos.get((topic, group))
        if infos is not None and infos.pop(queue_id, None) is not None:
            self._count -= 1
            self._changed(topic, group, queue_id)
            if not infos:
                del self._infos[topic, group]

    def remove_if(self, is_gone: Callable[[str, str, int, OrderInfo], bool]) -> None:
        """Free the queues that `is_gone(topic, group, queue id, info)` names."""
        for topic, group, queue_id, info in list(self.items()):
            if is_gone(topic, group, queue_id, info):
                self.remove(topic, group, queue_id)

    def clean(self, has_queue: Callable[[str, str, int], bool], *, now_ms: int) -> Iterator[None]:
        """Drop what is of no more use, to be iterated: a slice at a time. `has_queue(topic, group, queue id)`."""
        for number, (topic, group, queue_id, info) in enumerate(list(self.items())):
            if number % CLEANED_SLICE == 0:
                yield
            is_gone = not has_queue(topic, group, queue_id)
            if (is_gone or info.is_idle_since(now_ms - IDLE_MS_MAX)) and self.find(topic, group, queue_id) is info:
                self.remove(topic, group, queue_id)

    # -- file ----------------------------------------------------------------------------------------------------------

    def encode(self, *, log_offset: PhysicalOffset) -> bytes:
        """The file's content; `log_offset` is the log's end now."""
        tables = []
        for (topic, group), infos in self._infos.items():
            pieces = []
            for queue_id, info in infos.items():
                key = topic, group, queue_id
                if key not in self._encoded:
                    self._encoded[key] = json_dialect.dumps_dialect(OrderInfoJson.of(info))
                pieces.append(b"%d:%s" % (queue_id, self._encoded[key]))
            tables.append(b"%s:{%s}" % (msgspec.json.encode(f"{topic}@{group}"), b",".join(pieces)))
        return b'{"popLogOffset":%d,\n"table":{\n%s\n}}' % (log_offset, b",\n".join(tables))

    def load(self, data: bytes | None) -> None:
        """Take over a file's content.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        if data is None:
            self.log_offset = LOG_START
            return
        try:
            file = json_dialect.loads_file_as(data, _OrderFile)
        except InvalidRequestError as error:
            raise CorruptDataError("order infos cannot be read", file=FILE_NAME, reason=str(error)) from error
        self.log_offset = file.pop_log_offset
        for name, queues in file.table.items():
            topic, separator, group = name.partition("@")
            if not separator:
                logger.warning("order info without a group passed over key=%s", name)
                continue
            for queue_id, json in queues.items():
                info = json.info()
                if info is not None:
                    self._set(topic, group, queue_id, info)

    def _set(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        infos = self._infos.setdefault((topic, group), {})
        self._count += queue_id not in infos
        infos[queue_id] = info

    def _changed(self, topic: str, group: str, queue_id: int) -> None:
        self._encoded.pop((topic, group, queue_id), None)
        self.changes.add()
