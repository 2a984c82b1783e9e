"""Index link: sends the hot process's queries to the index process, and keeps the index's durable offset."""

import logging
from collections.abc import Awaitable, Callable

from thermocline.broker.cold import KeyMatches, KeyQuery
from thermocline.broker.helpers.helper_hub import HelperHub, decode_body
from thermocline.broker.helpers.helper_protocol import (
    INDEX_ROLE,
    HelperRequestCode,
    IndexProgress,
    IndexQueryReply,
    IndexQueryRequest,
)
from thermocline.remoting.offsets import LOG_START, PhysicalOffset

logger = logging.getLogger(__name__)


class IndexLink:
    """KeyIndex by way of the index process. Belongs to the hot process's loop."""

    def __init__(self, hub: HelperHub, *, flushed: Callable[[], Awaitable[PhysicalOffset]], timeout_ms: int) -> None:
        """`flushed`: makes the log durable up to its end now and returns that offset; a query answers for all below."""
        self._hub = hub
        self._flushed = flushed
        self._timeout_ms = timeout_ms
        self._durable_offset = LOG_START
        self._index_timestamp_ms = 0
        hub.add_role(INDEX_ROLE, self)

    @property
    def durable_offset(self) -> PhysicalOffset:
        """Log offset below which all keys are durably indexed; 0 until the index process has said so in this boot."""
        return self._durable_offset

    @property
    def index_timestamp_ms(self) -> int:
        """Store time of the last record that is durably indexed; 0 when unknown."""
        return self._index_timestamp_ms

    def helper_connected(self) -> None:
        """Needs nothing: it resumes from its own checkpoint and reports its progress."""

    def helper_told(self, code: int, body: bytes | memoryview) -> None:
        """Handle its progress report."""
        assert code == HelperRequestCode.INDEX_PROGRESS
        progress = decode_body(body, IndexProgress)
        self._durable_offset = progress.durable_offset
        self._index_timestamp_ms = progress.store_timestamp_ms

    async def find(self, query: KeyQuery) -> KeyMatches:
        """Look a key up; see KeyIndex."""
        request = IndexQueryRequest(query=query, up_to_offset=await self._flushed())
        response = await self._hub.ask(INDEX_ROLE, HelperRequestCode.INDEX_QUERY, request, timeout_ms=self._timeout_ms)
        reply = decode_body(response.body, IndexQueryReply)
        return KeyMatches(
            physical_offsets=reply.physical_offsets,
            last_store_timestamp_ms=reply.last_store_timestamp_ms,
            last_physical_offset=reply.last_physical_offset,
        )
