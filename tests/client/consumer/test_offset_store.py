"""Local offsets: the official clients' file, replaced as a whole."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from thermocline.client.consumer.offset_store import LocalOffsetStore
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import InvalidRequestError

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=1)


def store_in(directory: Path) -> LocalOffsetStore:
    return LocalOffsetStore(directory=directory, client_id="10.0.0.1@one", group="billing")


async def test_offsets_survive_in_the_official_form(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert await store.read(QUEUE) is None
    await store.persist({QUEUE: 7}, is_confirmed=True)
    path = tmp_path / "10.0.0.1@one" / "billing" / "offsets.json"
    assert path.read_text() == '{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:7}}'
    assert await store_in(tmp_path).read(QUEUE) == 7
    assert list(path.parent.iterdir()) == [path]


async def test_a_file_of_an_official_client_is_read(tmp_path: Path) -> None:
    path = tmp_path / "10.0.0.1@one" / "billing" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"offsetTable":{{"topic":"orders","brokerName":"broker-a","queueId":1}:12,}}')
    assert await store_in(tmp_path).read(QUEUE) == 12


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a number for its user: Python raises a RuntimeError."""

    def getpwuid(number: int) -> object:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    with pytest.raises(InvalidRequestError, match="local_offset_directory"):
        LocalOffsetStore(directory=None, client_id="10.0.0.1@one", group="billing")


async def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.persist({QUEUE: 7}, is_confirmed=True)
    path = tmp_path / "10.0.0.1@one" / "billing" / "offsets.json"
    path.unlink()
    await store.persist({QUEUE: 7}, is_confirmed=True)
    assert not path.exists()


async def test_the_file_is_synced_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that a power cut may leave an empty file, with which the consumer does not start."""
    done: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("sync"), sync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda source, target: (done.append("replace"), replace(source, target)))
    store = store_in(tmp_path)
    await asyncio.gather(*(store.persist({QUEUE: offset}, is_confirmed=True) for offset in (7, 8)))
    assert done == ["sync", "replace"] * 2
    assert await store_in(tmp_path).read(QUEUE) == 8


def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "10.0.0.1@one" / "billing" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("{broken")
    with pytest.raises(InvalidRequestError, match="damaged"):
        store_in(tmp_path)
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        store_in(path)


async def test_a_write_that_fails_is_repeated(tmp_path: Path) -> None:
    store = store_in(tmp_path / "offsets")
    (tmp_path / "offsets").write_text("a file where the directory should be")
    await store.persist({QUEUE: 7}, is_confirmed=True)
    (tmp_path / "offsets").unlink()
    await store.persist({QUEUE: 7}, is_confirmed=True)
    assert await store_in(tmp_path / "offsets").read(QUEUE) == 7


async def test_a_write_waits_for_one_whose_caller_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a close beside a round of commits: two threads wrote one file, and the consumer did not start again."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    done: list[str] = []
    threads: list[asyncio.Task[None]] = []

    async def work(function: Callable[..., None], *arguments: object) -> None:
        done.append("begin")
        begun.set()
        await may_end.wait()
        function(*arguments)
        done.append("end")

    async def to_thread(function: Callable[..., None], *arguments: object) -> None:
        """A thread goes on where its caller is cancelled."""
        threads.append(asyncio.create_task(work(function, *arguments)))
        await asyncio.shield(threads[-1])

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    store = store_in(tmp_path)
    round_of_commits = asyncio.create_task(store.persist({QUEUE: 7}, is_confirmed=False))
    await begun.wait()
    round_of_commits.cancel()
    at_close = asyncio.create_task(store.persist({QUEUE: 8}, is_confirmed=True))
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == ["begin"]
    may_end.set()
    await at_close
    assert done == ["begin", "end"] * 2
    assert await store_in(tmp_path).read(QUEUE) == 8
