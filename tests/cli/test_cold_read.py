"""`thermocline cold read`: a topic's history from a bucket of packs and segments, with no broker anywhere."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_s3 import S3Bucket
from tests.spark.reading.test_packs import write_packs
from tests.tiered.stand_alone import rows as stand_alone_rows
from thermocline.cli.main import run
from thermocline.tiered.bucket.bucket_messages import WantedMessages, read_messages

Sent = list[tuple[str, int, int, bytes]]


@pytest.fixture(scope="module")
def history(module_folder: Path) -> tuple[str, Sent]:
    """A bucket in a directory, and what was sent to it."""
    url = (module_folder / "bucket").as_uri()
    return url, asyncio.run(write_packs(url))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(["cold", "read", *words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def body_of(row: dict[str, Any]) -> bytes:
    text: str = row["body"]
    return b64decode(text.removeprefix("base64:")) if text.startswith("base64:") else text.encode()


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["queue"], row["queue_offset"]) for row in rows]


@pytest.mark.parametrize("topic", ["orders", "payments", "small"])
def test_every_message_of_packs_and_segments_comes_once_in_order(
    history: tuple[str, Sent], capsys: pytest.CaptureFixture[str], topic: str
) -> None:
    url, sent = history
    rows = shown(capsys, url, topic)
    assert [(*place, body_of(row)) for place, row in zip(places(rows), rows, strict=True)] == sorted(
        (queue, offset, body) for name, queue, offset, body in sent if name == topic
    )
    listed = stand_alone_rows(url.removeprefix("file://"), "cat", topic)
    assert places(rows) == [(row["queue_id"], row["queue_offset"]) for row in listed]


def test_url_and_topic_come_in_either_order(history: tuple[str, Sent], capsys: pytest.CaptureFixture[str]) -> None:
    url, _ = history
    assert shown(capsys, "small", url) == shown(capsys, url, "small") != []


def test_ranges_of_queue_offset_time_and_count(history: tuple[str, Sent], capsys: pytest.CaptureFixture[str]) -> None:
    url, _ = history
    everything = shown(capsys, url, "orders")
    first_queue = [row for row in everything if row["queue"] == 0]
    assert shown(capsys, url, "orders", "--queue", "0", "--offset", "5", "--end", "9") == first_queue[5:9]
    assert shown(capsys, url, "orders", "--queue", "0", "--count", "3") == first_queue[:3]
    assert places(shown(capsys, url, "orders", "--count", "1")) == [(0, 0), (1, 0)]
    times = sorted({row["store_timestamp_ms"] for row in everything})
    since_ms, until_ms = times[len(times) // 3], times[2 * len(times) // 3]
    between = [row for row in everything if since_ms <= row["store_timestamp_ms"] < until_ms]
    assert 0 < len(between) < len(everything)
    assert shown(capsys, url, "orders", "--since", str(since_ms), "--until", str(until_ms)) == between
    assert shown(capsys, url, "orders", "--until", "latest") == everything
    assert shown(capsys, url, "orders", "--offset", "1000000") == []


def test_people_see_a_table(history: tuple[str, Sent], capsys: pytest.CaptureFixture[str]) -> None:
    url, sent = history
    assert run(["cold", "read", url, "small"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["broker", "queue"]
    assert len(lines) == sum(name == "small" for name, *_ in sent)
    assert run(["cold", "read", url, "small", "--queue", "0", "--offset", "1000000"]) == 0
    assert capsys.readouterr() == ("", "nothing to show\n")


def test_messages_are_given_while_others_are_still_unread(history: tuple[str, Sent]) -> None:
    url, sent = history
    messages = read_messages(url, WantedMessages(topic="orders"))
    assert [next(messages)[1].queue_offset for _ in range(3)] == [0, 1, 2]
    messages.close()  # type: ignore[attr-defined]
    assert len(list(read_messages(url, WantedMessages(topic="orders")))) == sum(name == "orders" for name, *_ in sent)


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["no-such-topic"], 1, "the bucket holds no messages of this topic topic=no-such-topic"),
        (["orders", "--queue", "77"], 1, "the topic has no such queue there"),
        (["orders", "--broker", "broker-z"], 1, "there is no cold tier at this URL"),
        (["orders", "--offset", "-1"], 2, "Invalid value for '--offset'"),
        (["orders", "--since", "latest"], 2, "latest is no moment"),
        (["orders", "--until", "soon"], 2, "'soon' is no time"),
        (["s3://one/more"], 2, "Give one topic and one bucket"),
    ],
)
def test_a_failure_is_one_sentence_and_a_status(
    history: tuple[str, Sent], capsys: pytest.CaptureFixture[str], words: list[str], status: int, sentence: str
) -> None:
    assert run(["cold", "read", history[0], *words]) == status
    out, err = capsys.readouterr()
    assert not out
    assert sentence in err
    assert "Traceback" not in err


def test_two_words_without_a_url_are_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cold", "read", "orders", "payments"]) == 2
    assert "Give one topic and one bucket" in capsys.readouterr().err


def test_damage_is_an_error_that_names_the_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asyncio.run(write_packs(tmp_path.as_uri()))
    damaged = 0
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.read_bytes()[:8] in (b"THERMLOG", b"THERMPAK"):
            data = bytearray(path.read_bytes())
            data[40] ^= 1
            path.write_bytes(data)
            damaged += 1
    assert damaged
    assert run(["cold", "read", tmp_path.as_uri(), "orders", "--json"]) == 1
    out, err = capsys.readouterr()
    assert not out.endswith("]\n")
    assert "the frame does not decompress key=" in err
    assert "/topics/orders/" in err
    assert "Traceback" not in err


@pytest.mark.s3
def test_a_bucket_of_an_s3_server_is_read(s3_bucket: S3Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    sent = asyncio.run(write_packs(s3_bucket.cold_url))
    rows = shown(capsys, "payments", s3_bucket.cold_url)
    assert places(rows) == sorted((queue, offset) for name, queue, offset, _ in sent if name == "payments")
