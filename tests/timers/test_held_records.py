"""The part of the log that pending messages hold, and how it is given back."""

from __future__ import annotations

from tests.store.store_parts import add_topic, delete_topic
from tests.timers.timer_parts import NOW_MS, WINDOW_MS, World, log_config
from thermocline.store.files.disk import Disk
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.retention import RetentionGate


def world_with_small_logs(disk: Disk | None = None) -> World:
    """Log files of a dozen messages, which retention may take at once."""
    return World(disk, store_config=log_config(log_file_bytes=4_096, file_reserved_ms=-1, delete_when_hours=()))


OTHER_RECORD_BYTES = 196


def fill(world: World, count: int = 40) -> None:
    """Other messages, so that the log goes on."""
    for _ in range(count):
        result = world.store.put(
            MessageDraft(
                topic="other",
                queue_id=0,
                body=bytes(100),
                properties_text=b"",
                born_timestamp_ms=0,
                born_host=("10.0.0.2", 1),
            )
        )
        assert result.size_bytes == OTHER_RECORD_BYTES


def rounds(world: World) -> None:
    while world.timers.run_round():
        continue


def retain(world: World) -> None:
    """What the broker does about local files every second."""
    world.store.sync_derived()
    gate = RetentionGate(held_offset=world.timers.held_offset)
    world.store.retention.execute(world.store.retention.plan(gate, now_ms=world.clock.now_ms, hour=4))


def test_nothing_is_held_when_nothing_waits() -> None:
    world = world_with_small_logs()
    fill(world)
    assert world.timers.held_offset == world.store.commit_log.append_offset


def test_nothing_is_held_once_everything_is_delivered_though_no_round_follows() -> None:
    """An idle broker makes no rounds, and its log goes on."""
    world = world_with_small_logs()
    world.send_at(NOW_MS + 5_000)
    world.jump(NOW_MS + 7_000)
    rounds(world)
    fill(world)
    assert not world.timers.run_round()
    assert world.timers.held_offset == world.store.commit_log.append_offset
    world.send_at(NOW_MS + 50_000)
    fill(world)
    assert world.timers.held_offset == world.timed()[1].physical_offset


def test_a_pending_message_holds_the_log_from_its_record_on() -> None:
    world = world_with_small_logs()
    fill(world)
    world.send_at(NOW_MS + 5_000)
    first = world.timed()[0].physical_offset
    fill(world)
    world.send_at(NOW_MS + 50_000)
    assert world.timers.held_offset <= first
    world.run()
    rounds(world)
    assert world.timers.held_offset == first
    world.jump(NOW_MS + 7_000)
    assert world.timers.held_offset == first  # until the next round is durable
    rounds(world)
    assert world.timers.held_offset == world.timed()[1].physical_offset


def test_a_message_that_is_not_enqueued_holds_the_log() -> None:
    world = world_with_small_logs()
    fill(world)
    world.timers.run_round(is_forced=True)
    world.send_at(NOW_MS + 5_000)
    fill(world)
    world.timers.run_round(is_forced=True)
    assert world.timers.held_offset == world.timed()[0].physical_offset


def test_the_log_is_held_over_a_restart() -> None:
    world = world_with_small_logs()
    fill(world)
    world.send_at(NOW_MS + 50_000)
    first = world.timed()[0].physical_offset
    world.run()
    world.close()
    again = world.reopen()
    assert again.timers.held_offset == first
    again.run()
    again.timers.run_round(is_forced=True)
    assert again.timers.held_offset == first


def test_retention_waits_for_pending_messages_and_no_longer() -> None:
    world = world_with_small_logs()
    world.send_at(NOW_MS + 5_000)
    fill(world, 100)
    world.run()
    rounds(world)
    retain(world)
    assert world.store.commit_log.min_offset == 0
    assert world.jump(NOW_MS + 7_000) == [b"1"]
    rounds(world)
    retain(world)
    assert world.store.commit_log.min_offset > 0


def test_a_released_message_is_put_again_and_delivered_once_in_its_time() -> None:
    world = world_with_small_logs()
    for number in range(30):
        world.send_at(NOW_MS + 20_000 + 100 * number)
        fill(world, 5)
    world.send_at(NOW_MS + 3 * WINDOW_MS)
    world.run()
    wanted = world.store.commit_log.files.last.base_offset
    world.timers.release_below(wanted)
    world.run()
    rounds(world)
    assert world.releases >= 25
    assert world.timers.held_offset >= wanted
    retain(world)
    assert world.store.commit_log.min_offset == wanted
    assert world.timers.metrics.counts() == {"orders": 31}
    went = world.run_until(NOW_MS + 30_000, step_ms=20)
    assert [body for _, body in went] == [str(number + 1).encode() for number in range(30)]
    assert all(0 <= went_ms - (NOW_MS + 20_000 + 100 * (int(body) - 1)) <= 40 for went_ms, body in went)
    assert [body for _, body in world.run_until(NOW_MS + 4 * WINDOW_MS, step_ms=1_000)] == [b"31"]
    assert world.timers.metrics.counts() == {"orders": 0}


def test_a_release_is_wanted_until_the_log_is_free() -> None:
    world = world_with_small_logs()
    world.send_at(NOW_MS + 50_000)
    fill(world)
    world.run()
    rounds(world)
    assert not world.timers.is_release_wanted
    world.timers.release_below(world.store.commit_log.files.last.base_offset)
    assert world.timers.is_release_wanted
    world.run()
    assert world.timers.is_release_wanted  # a crash would need it still
    rounds(world)
    assert not world.timers.is_release_wanted


def test_releases_write_no_more_than_other_work() -> None:
    """More waits than a log file holds, and every file is wanted back at once: copies must not chase copies."""
    world = world_with_small_logs()
    log = world.store.commit_log
    for number in range(30):
        world.send_at(NOW_MS + 50_000 + number)
    pending_bytes = log.append_offset
    world.run()

    def want_everything() -> None:
        world.timers.release_below(log.files.last.base_offset)
        world.run()
        rounds(world)
        retain(world)

    for _ in range(200):
        want_everything()
    assert 30 <= world.releases <= 60  # once, and no second time without another message
    start = log.append_offset
    for _ in range(200):
        fill(world, 1)
        want_everything()
    assert world.releases > 60
    assert log.min_offset > start
    other_bytes = 200 * OTHER_RECORD_BYTES
    copied_bytes = log.append_offset - start - other_bytes
    assert copied_bytes <= other_bytes + 3 * pending_bytes  # blanks, and a copy of all at either end
    assert len(world.run_until(NOW_MS + 60_000, step_ms=500)) == 30


def test_a_release_survives_a_kill_at_any_point() -> None:
    for rounds_before, rounds_after in ((0, 0), (1, 0), (2, 1), (3, 3)):
        world = world_with_small_logs()
        for number in range(10):
            world.send_at(NOW_MS + 20_000 + 100 * number)
            fill(world, 5)
        world.run()
        for _ in range(rounds_before):
            world.timers.run_round()
        world.timers.release_below(world.store.commit_log.append_offset)
        for _ in range(3):
            due = world.timers.step()
            for message in due:
                world.put(message)
            world.timers.confirm(len(due))
        for _ in range(rounds_after):
            world.timers.run_round()
            retain(world)
        world = world.kill()
        went = {body for _, body in world.run_until(NOW_MS + 30_000, step_ms=500)}
        assert went == {str(number + 1).encode() for number in range(10)}


def test_released_recall_markers_still_recall() -> None:
    world = world_with_small_logs()
    stored = world.send_at(NOW_MS + 50_000)
    world.send_at(NOW_MS + 50_000)
    fill(world)
    properties = (
        stored.properties_text.replace(b"UNIQ_KEY\x01id-1", b"UNIQ_KEY\x01m") + b"TIMER_DEL_UNIQKEY\x01id-1\x02"
    )
    world.store.put(
        MessageDraft(
            topic=stored.topic,
            queue_id=0,
            body=b"0",
            properties_text=properties,
            born_timestamp_ms=0,
            born_host=("10.0.0.2", 1),
        )
    )
    fill(world)
    world.run()
    world.timers.release_below(world.store.commit_log.files.last.base_offset)
    world.run()
    rounds(world)
    retain(world)
    assert world.releases == 3
    assert world.store.commit_log.min_offset > 0
    assert world.timers.metrics.counts() == {"orders": 1}
    assert world.jump(NOW_MS + 60_000) == [b"2"]
    assert world.timers.metrics.counts() == {"orders": 0}


def test_messages_of_a_deleted_topic_are_not_kept() -> None:
    world = world_with_small_logs()
    add_topic(world.store, "orders")
    world.send_at(NOW_MS + 50_000)
    fill(world)
    world.run()
    delete_topic(world.store, "orders")
    add_topic(world.store, "orders")
    world.timers.release_below(world.store.commit_log.append_offset)
    world.run()
    rounds(world)
    assert world.releases == 0
    assert world.timers.held_offset == world.store.commit_log.append_offset
    assert world.jump(NOW_MS + 60_000) == []


def test_timer_log_files_go_when_nothing_in_them_is_needed() -> None:
    world = world_with_small_logs()
    for second in range(100):
        world.send_at(NOW_MS + 1_000 * second + 1)
    world.run()
    rounds(world)
    directory = world.config.log_path
    assert len(world.disk.list_directory(directory)) == 6
    world.jump(NOW_MS + 50_000)
    rounds(world)
    world.jump(NOW_MS + 51_000)
    rounds(world)
    assert len(world.disk.list_directory(directory)) == 4
    world = world.kill()
    assert len(world.run_until(NOW_MS + 120_000, step_ms=500)) >= 49
    rounds(world)
    world.send_at(NOW_MS + 130_000)
    world.run()
    rounds(world)
    assert len(world.disk.list_directory(directory)) == 1
