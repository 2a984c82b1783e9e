"""The state of a broker that is not there: its files, as its hot process would have written them, and the real
`StateRounds` that saves them in the bucket.

Topics and groups are written once; the offsets of the groups are written whenever they are looked at, as the hot
process does, so that each look makes a snapshot. Entries of rounds carry the state, as in a broker.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.synthetic_cold_tier import SyntheticColdTier
from thermocline.broker.state import PoppedOffsets, document_paths, encode_document, reserve_bytes
from thermocline.broker.tier_process import StateCapture, StateRounds, queue_ends
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import RealDisk
from thermocline.store.state import TopicIncarnations
from thermocline.tiered.state import CONSUMER_OFFSETS, GROUPS, TOPICS, StateLog

GROUP_NAMES = ("billing", "search")


class SyntheticState:
    """State files of a tier's topics in `folder`, with `queues` queues each; `save_due` as the tier
    process would."""

    def __init__(self, tier: SyntheticColdTier, folder: Path, *, queues: int, interval_ms: int) -> None:
        self._tier = tier
        config, disk = StoreConfig(root_path=str(folder)), RealDisk()
        self._paths = document_paths(config)
        for path in (config.config_path, config.own_path):
            Path(path).mkdir(parents=True)
        queue_nums = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        self._write(TOPICS, {"topicConfigTable": {name: {"topicName": name, **queue_nums} for name in tier.topics}})
        self._write(GROUPS, {"subscriptionGroupTable": {name: {"groupName": name} for name in GROUP_NAMES}})
        incarnations = TopicIncarnations()
        for name, topic in tier.topics.items():
            topic.incarnation = incarnations.create(name, start_offset=PhysicalOffset(0)).id
        incarnations.save(disk, config.incarnation_path)
        self._rounds = StateRounds(
            tier.writer,
            StateLog(tier.writer),
            StateCapture(disk, config, clock=lambda: tier.hot.now_ms),
            ends=lambda: queue_ends(tier.service.backlog),
            reported_offset=lambda: tier.service.backlog.reported_offset,
            popped=self._popped,
            append_offset=lambda: tier.hot.append_offset,
            saved=lambda ceiling: None,
            reserve_bytes=reserve_bytes(disk, config, configured=0),
            interval_ms=interval_ms,
            clock=lambda: tier.hot.now_ms,
        )
        tier.service.carry = self._rounds.carry

    async def save_due(self) -> None:
        """See StateRounds."""
        await self._rounds.save_due()

    async def _popped(self) -> PoppedOffsets:
        """Every group has read everything, and has it written; nothing is popped."""
        ends: dict[str, dict[str, int]] = {}
        for (topic, queue_id), queue in self._tier.hot.queues.items():
            ends.setdefault(topic, {})[str(queue_id)] = queue.end_offset
        offsets = {f"{topic}@{group}": queues for topic, queues in ends.items() for group in GROUP_NAMES}
        self._write(CONSUMER_OFFSETS, {"offsetTable": offsets})
        return ()

    def _write(self, name: str, document: object) -> None:
        Path(self._paths[name]).write_bytes(encode_document(name, document, now_ms=self._tier.hot.now_ms))
