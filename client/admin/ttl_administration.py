"""Time to live: preview and change it, and prove that what has expired cannot be reached.

The proof has two sides. A broker lists expired data that is still stored: objects, local files, and samples, read past
the cut. Then every sample is looked up as any client would: by its offset, by its time, by its keys and ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from thermocline.client.admin.message_lookup import (
    MessageLookup,
    WantedMessages,
    wanted_by_key,
    wanted_by_unique_key,
)
from thermocline.client.admin.tier_administration import REPORT_TIMEOUT_MS, TierAdministration, checked_ttl_ms
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError
from thermocline.remoting.private_requests import PrivateRequestCode, TtlEvidenceHeader, TtlHeader

__all__ = ["TtlAdministration"]

PROOF_TIMEOUT_MS = 120_000
KEYS_ASKED_MAX = 4

Find = Callable[[WantedMessages], Awaitable[list[ReceivedMessage]]]


class TtlAdministration(TierAdministration, MessageLookup):
    """Part of `AsyncAdminClient`."""

    async def preview_ttl(self, topic: str, ttl_ms: int | None) -> dict[str, dict[str, Any]]:
        """Return, by broker name, what would go if a topic had this time to live; None: the broker's default."""
        header = TtlHeader(topic=topic, ttl_ms=checked_ttl_ms(ttl_ms))
        masters = await self._topic_masters(topic)
        return await self._ask_masters(PrivateRequestCode.TTL_PREVIEW, masters, header, REPORT_TIMEOUT_MS)

    async def set_ttl(self, topic: str, ttl_ms: int | None) -> dict[str, dict[str, Any]]:
        """Let messages of a topic live this long from now on; None: the broker's default. In effect at once.

        What has expired once never comes back, however long the new time is.
        """
        header = TtlHeader(topic=topic, ttl_ms=checked_ttl_ms(ttl_ms))
        masters = await self._topic_masters(topic)
        return await self._ask_masters(PrivateRequestCode.TTL_SET, masters, header, REPORT_TIMEOUT_MS)

    async def prove_ttl(self, topic: str) -> dict[str, dict[str, Any]]:
        """Return, by broker name, what has expired of a topic and is stored still, and whether anything refers to it.

        The broker's evidence (`PrivateRequestCode.TTL_EVIDENCE`), and `probeCount`, `reached` (samples that a reader
        found, and how), `problems` in words, and `isProven`: there is none.
        """

        async def ask(master: BrokerAddress) -> dict[str, Any]:
            code, header = PrivateRequestCode.TTL_EVIDENCE, TtlEvidenceHeader(topic=topic)
            evidence = await self._tier_answer(master, code, header, PROOF_TIMEOUT_MS)
            return await self._proof(topic, master, evidence)

        answers = await self._ask_each(await self._topic_masters(topic), ask)
        return answers.whole(answers.by_name())

    async def _proof(self, topic: str, master: BrokerAddress, evidence: Mapping[str, Any]) -> dict[str, Any]:
        cut_ms, broker_name = evidence["cutMs"], master.broker_name
        probe = _Probe(self, lambda wanted: self._query_at(master, wanted), cut_ms=cut_ms)
        for queue in evidence["queues"]:
            await probe.bounds(MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue["queueId"]))
        for sample in evidence["samples"]:
            await probe.sample(MessageQueue(topic=topic, broker_name=broker_name, queue_id=sample["queueId"]), sample)
        problems = [
            f"queue {each['queueId']}, offset {each['offset']} has expired and is found by {each['by']}"
            for each in probe.reached
        ]
        problems += [
            f"queue {each['queueId']}, offset {each['offset']} has not expired and is hidden"
            for each in evidence["samples"]
            if each["storeMs"] >= cut_ms
        ]
        tier = evidence["tier"]
        if tier is not None:
            problems += [
                f"the catalog names segment or pack {each['segmentId']}, which has expired: {each['why']}"
                for each in tier["named"]
                if each["isOverdue"]
            ]
            if tier["cachedBytes"]:
                problems.append(f"{tier['cachedBytes']} bytes of what has left the catalog are kept in memory")
        elif evidence["tierAway"]:
            problems.append(f"the cold tier could not be looked at: {evidence['tierAway']}")
        return {
            **evidence,
            "probeCount": probe.count,
            "reached": probe.reached,
            "problems": problems,
            "isProven": not problems,
        }


class _Probe:
    """Asks for messages as any client would, and notes those that should not be found."""

    def __init__(self, admin: MessageLookup, find: Find, *, cut_ms: int) -> None:
        """`find` looks up at the broker whose messages these are."""
        self._admin = admin
        self._find = find
        self._cut_ms = cut_ms
        self.count = 0
        self.reached: list[dict[str, Any]] = []

    async def bounds(self, queue: MessageQueue) -> None:
        """The first message that the queue still holds has not expired."""
        self.count += 1
        earliest_ms = await self._admin.earliest_store_time(queue)
        if earliest_ms is not None and earliest_ms < self._cut_ms:
            self._note(queue, await self._admin.min_offset(queue), "the queue's minimum")

    async def sample(self, queue: MessageQueue, sample: Mapping[str, Any]) -> None:
        """One expired message, by every way that there is to it."""
        admin, offset, store_ms = self._admin, sample["offset"], sample["storeMs"]
        if store_ms >= self._cut_ms:
            return
        self.count += 1
        pulled = await admin.pull(queue, offset)
        if any(message.store_timestamp_ms < self._cut_ms for message in pulled.messages):
            self._note(queue, offset, "its offset")
        for boundary in ("LOWER", "UPPER"):
            if await admin.search_offset(queue, store_ms, boundary=boundary) <= offset:
                self._note(queue, offset, f"its time ({boundary.lower()} boundary)")
        for key in sample["keys"][:KEYS_ASKED_MAX]:
            found = await self._find(wanted_by_key(queue.topic, key))
            if any(message.queue == queue and message.queue_offset == offset for message in found):
                self._note(queue, offset, f"its key {key}")
        if sample["uniqueKey"] and await self._is_found_by_unique_key(queue, offset, sample["uniqueKey"]):
            self._note(queue, offset, "its unique id")
        try:
            await admin.view_message(sample["messageId"], topic=queue.topic)
        except ObjectNotFoundError:
            return
        self._note(queue, offset, "its offset message id")

    async def _is_found_by_unique_key(self, queue: MessageQueue, offset: int, unique_key: str) -> bool:
        try:
            found = await self._find(wanted_by_unique_key(queue.topic, unique_key))
        except InvalidRequestError:
            return False  # an id that no lookup accepts
        return any(message.queue == queue and message.queue_offset == offset for message in found)

    def _note(self, queue: MessageQueue, offset: int, by: str) -> None:
        self.reached.append({"queueId": queue.queue_id, "offset": offset, "by": by})
