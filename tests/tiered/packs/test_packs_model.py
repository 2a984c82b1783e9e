"""Any interleaving of sending, sealing, packing, merging, changes of the time to live, deletion, garbage collection and
restarts reads like one endless log, by offset, by time and by key. A failure names its seed."""

from __future__ import annotations

from collections.abc import Callable

from tests.tiered.packs.model import NAMES, Model


async def test_any_interleaving_reads_like_one_endless_log(case_count: Callable[..., int]) -> None:
    merges = segments = 0
    levels: set[int] = set()
    indexes, index_levels = 0, set[int]()
    for seed in range(case_count(quick=25, soak=1_000)):
        model = Model(seed)
        try:
            await model.start()
            for _ in range(60):
                await model.step()
                await model.check_queue(model.random.choice(NAMES), model.random.randrange(3))
            await model.age()
            await model.check_all()
            segments += model.tier.catalog.segment_count
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            await model.stop()
        merges += model.merge_count
        levels |= model.levels
        indexes += model.index_count
        index_levels |= model.index_levels
    assert merges >= 50
    assert segments
    assert max(levels) >= 2
    assert indexes >= 50
    assert max(index_levels) >= 1
