"""Whatever has happened to a cold tier, the reader in examples/ reads one endless log from a copy of its bucket:
sealing, packing, merging, indexing, changed times to live, deletion, garbage collection, restarts. A failure names its
seed.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from benchmarks.synthetic_cold_tier import KEYS
from examples.cold_reader import History, read
from tests.tiered.packs.model import NAMES, Model
from thermocline.remoting.records.message_id import encode_message_id

STORE_HOST = ("10.1.2.3", 10911)


async def test_the_reader_in_examples_reads_one_endless_log(case_count: Callable[..., int], tmp_path: Path) -> None:
    seen = 0
    kinds: set[str] = set()
    for seed in range(case_count(quick=8, soak=400)):
        model = Model(seed)
        try:
            await model.start()
            for _ in range(60):
                await model.step()
            await model.age()
            history = copied(model, tmp_path / str(seed))
            for name in NAMES:
                for queue_id, sent in model.incarnations[name].queues.items():
                    seen += check_queue(model, history, name, queue_id, [each.record for each in sent])
            kinds |= {key.split("/")[2] for key in model.store.objects}
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            await model.stop()
            read.cache_clear()
            shutil.rmtree(tmp_path / str(seed), ignore_errors=True)
    assert seen > 100
    assert {"topics", "packs", "indexes", "checkpoints", "ledger"} <= kinds


def copied(model: Model, folder: Path) -> History:
    """What the reader finds in a copy of the bucket, laid down as tools that copy a bucket do."""
    for key, data in model.store.objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(data))
    return History(folder, KEYS.root, model.hot.now_ms)


def check_queue(model: Model, history: History, name: str, queue_id: int, sent: list[bytes]) -> int:
    """One queue by offset, time, key and place; how many records of it are visible."""
    entry = model.tier.catalog.topics.get(name)
    if entry is None or entry.incarnation != model.topics[name].incarnation:
        return 0  # nothing of this life is committed yet
    topic = history.topics[name]
    assert (topic["incarnation"], topic["deleted"]) == (entry.incarnation, entry.deleted)
    end = model.tier.catalog.queue_ends(name).get(queue_id, 0)
    times = [each.store_ms for each in model.incarnations[name].queues[queue_id]][:end]
    first = bisect_left(times, model.topics[name].cut_ms(model.hot.now_ms))
    assert [each["raw"] for each in history.records(topic, queue_id)] == sent[first:end]
    if not times:
        return 0
    time_ms = model.random.choice(times) + model.random.choice((-1, 0, 1))
    found = islice(history.records(topic, queue_id, from_ms=time_ms), 1)
    assert [each["raw"] for each in found] == sent[max(first, bisect_left(times, time_ms)) : end][:1]
    offset = model.random.randrange(end)
    each = model.incarnations[name].queues[queue_id][offset]
    expected = [each.record] if offset >= first else []
    assert [record["raw"] for record in history.find_key(topic, each.key)] == expected
    place = encode_message_id(STORE_HOST, each.physical_offset)
    assert [record["raw"] for record in history.answer("id", [place], None, 0)] == expected
    return end - first
