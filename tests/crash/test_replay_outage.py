"""The SDK's push consumer through outages of the tier process and of the object store; see `replay_outage.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.crash.replay_outage import TOPIC, StoreOutage, TierOutage, replay_through
from tests.fixtures_s3 import new_bucket
from thermocline.client import AsyncPushConsumer, ConsumeContext, ConsumeFromWhere, ReceivedMessage
from thermocline.localstack import S3Server


class SdkReplay:
    """A Replay by the SDK."""

    def __init__(self, group: str, name_server: str) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self.bodies: dict[tuple[int, int], bytes] = {}
        # Held back to few messages, so that an outage meets it on its way and not with all of history in memory.
        self._consumer = AsyncPushConsumer(
            namesrv=name_server,
            group=group,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            pull_threshold_for_queue=64,
            pull_batch_size=16,
            pull_interval_ms=5,
            pull_time_delay_ms_when_exception=200,
        )
        self._consumer.subscribe(TOPIC)
        self._consumer.register_listener(self._listen)

    async def __aenter__(self) -> SdkReplay:
        await self._consumer.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._consumer.close()

    async def refresh(self) -> None:
        """Nothing to do: the listener has noted what came."""

    async def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for message in messages:
            place = message.queue.queue_id, message.queue_offset
            self.seen[place] += 1
            self.bodies[place] = message.body


@pytest.mark.full
@pytest.mark.crash
async def test_the_tier_process_dies_during_a_replay(tmp_path: Path, case_count: Callable[..., int]) -> None:
    outages = case_count(quick=1, soak=20)
    await replay_through(tmp_path, f"file://{tmp_path}/cold", TierOutage, SdkReplay, outages=outages)


@pytest.mark.crash
@pytest.mark.s3
async def test_the_object_store_dies_during_a_replay(
    tmp_path: Path, case_count: Callable[..., int], private_s3_server: S3Server
) -> None:
    outages = case_count(quick=1, soak=20)
    url = new_bucket(private_s3_server).cold_url
    await replay_through(tmp_path, url, lambda _: StoreOutage(private_s3_server), SdkReplay, outages=outages)
