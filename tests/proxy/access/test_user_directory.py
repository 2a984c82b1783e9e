"""How old users and policies may be, and the costs of look-ups and of strangers' names."""

from __future__ import annotations

import asyncio

import pytest

from tests.proxy.access.fake_users import ADDRESS, PUB_ORDERS, STALE_MS_MAX, Checked
from tests.waiting import until
from thermocline.proxy.access import user_directory
from thermocline.proxy.access.user_directory import LOOK_UPS_LIMIT, NAME_CHARACTERS_MAX
from thermocline.remoting.errors import BrokerBusyError, RequestTimeoutError, UnavailableError


async def test_a_user_is_looked_up_once_and_then_beside_its_requests() -> None:
    checked = Checked()
    users, directory = checked.users, checked.directory
    users.put("carol", PUB_ORDERS)
    first = await directory.find("carol", ADDRESS)
    users.now_ms = STALE_MS_MAX * 0.75 - 1
    assert await directory.find("carol", ADDRESS) is first
    assert users.asked == ["carol"]
    users.now_ms = STALE_MS_MAX * 0.75
    users.gate = asyncio.get_running_loop().create_future()  # nothing waits for the broker
    assert await directory.find("carol", ADDRESS) is first
    await until(lambda: users.asked == ["carol", "carol"])
    users.gate.set_result(None)
    await directory.close()


async def test_nothing_older_than_the_limit_is_given() -> None:
    checked = Checked()
    users, directory = checked.users, checked.directory
    users.put("carol", PUB_ORDERS)
    await directory.find("carol", ADDRESS)
    users.put("carol")
    users.now_ms = STALE_MS_MAX
    account = await directory.find("carol", ADDRESS)
    assert account is not None
    assert account.acl is None
    del users.accounts["carol"]
    users.now_ms = 2 * STALE_MS_MAX
    assert await directory.find("carol", ADDRESS) is None


async def test_an_account_that_did_not_change_is_the_same_object() -> None:
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    first = await checked.directory.find("carol", ADDRESS)
    checked.users.put("carol", PUB_ORDERS)
    checked.users.now_ms = STALE_MS_MAX
    assert await checked.directory.find("carol", ADDRESS) is first


async def test_brokers_that_do_not_answer_end_access() -> None:
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    await checked.directory.find("carol", ADDRESS)
    checked.users.error = UnavailableError("away")
    checked.users.now_ms = STALE_MS_MAX - 1
    assert await checked.directory.find("carol", ADDRESS) is not None
    checked.users.now_ms = STALE_MS_MAX
    for name in ("carol", "dave"):
        with pytest.raises(UnavailableError):
            await checked.directory.find(name, ADDRESS)


async def test_an_answer_that_would_be_too_old_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Checked()
    monkeypatch.setattr(checked.directory, "_stale_ms_max", 1)
    checked.users.gate = asyncio.get_running_loop().create_future()
    with pytest.raises(RequestTimeoutError):
        await checked.directory.find("carol", ADDRESS)


async def test_a_name_of_no_user_is_remembered_for_a_time() -> None:
    checked = Checked()
    for _ in range(5):
        assert await checked.directory.find("stranger", ADDRESS) is None
    assert checked.users.asked == ["stranger"]
    checked.users.put("stranger")
    checked.users.now_ms = STALE_MS_MAX
    assert await checked.directory.find("stranger", ADDRESS) is not None


async def test_names_of_strangers_take_neither_memory_nor_the_place_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_directory, "UNKNOWN_MAX", 3)
    checked = Checked(users_max=1)
    checked.users.put("carol")
    await checked.directory.find("carol", ADDRESS)
    for number in range(10):
        assert await checked.directory.find(f"stranger{number}", ADDRESS) is None
    assert len(checked.directory._unknown) == 3
    assert await checked.directory.find("x" * (NAME_CHARACTERS_MAX + 1), ADDRESS) is None
    checked.users.asked.clear()
    assert await checked.directory.find("carol", ADDRESS) is not None
    assert checked.users.asked == []


async def test_an_address_may_cause_so_many_look_ups_a_second() -> None:
    checked = Checked(look_ups_max=2)
    for name in ("carol", "dave", "erin"):
        checked.users.put(name)
    for name in ("carol", "stranger0", "dave", "stranger1"):  # users do not count
        await checked.directory.find(name, ADDRESS)
    with pytest.raises(BrokerBusyError):
        await checked.directory.find("stranger2", ADDRESS)
    assert checked.counts.totals == {LOOK_UPS_LIMIT: 1}
    assert await checked.directory.find("stranger1", ADDRESS) is None  # remembered
    assert await checked.directory.find("carol", ADDRESS) is not None
    assert await checked.directory.find("stranger2", "10.0.0.8") is None
    checked.users.now_ms += 1_000
    assert await checked.directory.find("erin", ADDRESS) is not None


async def test_while_nothing_changes_users_need_no_look_up() -> None:
    checked = Checked()
    users, directory = checked.users, checked.directory
    assert await directory.look_for_changes()
    assert users.versions_asked == 0  # there is no user yet
    users.put("carol", PUB_ORDERS)
    await directory.find("carol", ADDRESS)
    await directory.look_for_changes()  # carol was looked up before the version was known
    users.now_ms = 500
    await directory.look_for_changes()
    users.now_ms = STALE_MS_MAX
    await directory.find("carol", ADDRESS)
    assert users.asked == ["carol", "carol"]
    for now_ms in range(STALE_MS_MAX + 500, 10 * STALE_MS_MAX, 500):
        users.now_ms = now_ms
        await directory.look_for_changes()
        assert await directory.find("carol", ADDRESS) is not None
    assert users.asked == ["carol", "carol"]


async def confirmed() -> Checked:
    """A user that was looked up at 1, and is of the version that was there at 0 and at 900."""
    checked = Checked()
    checked.users.put("dave")
    await checked.directory.find("dave", ADDRESS)
    await checked.directory.look_for_changes()
    checked.users.now_ms = 1
    checked.users.put("carol", PUB_ORDERS)
    await checked.directory.find("carol", ADDRESS)
    checked.users.now_ms = 900
    await checked.directory.look_for_changes()
    checked.users.now_ms = 1_500
    assert await checked.directory.find("carol", ADDRESS) is not None
    assert checked.users.asked == ["dave", "carol"]
    return checked


async def test_a_change_ends_what_was_confirmed() -> None:
    checked = await confirmed()
    checked.users.put("carol")
    checked.users.current_version = "2"
    await checked.directory.look_for_changes()
    checked.users.now_ms = 1_900  # 1000 after it was confirmed last
    account = await checked.directory.find("carol", ADDRESS)
    assert account is not None
    assert account.acl is None
    await checked.directory.look_for_changes()
    checked.users.now_ms = 2_500
    checked.users.current_version = "3"  # a change that no round has seen yet
    assert await checked.directory.find("carol", ADDRESS) is account


@pytest.mark.parametrize("what", ["no answer", "no version"])
async def test_without_an_answer_nothing_is_confirmed(what: str) -> None:
    checked = await confirmed()
    if what == "no answer":
        checked.users.error = UnavailableError("away")
    checked.users.current_version = None
    assert await checked.directory.look_for_changes() is (what == "no answer")
    checked.users.error = None
    checked.users.now_ms = 1_900
    await checked.directory.find("carol", ADDRESS)
    assert checked.users.asked == ["dave", "carol", "carol"]


async def test_a_user_that_was_read_before_its_version_is_not_confirmed() -> None:
    """The look-up began before the answer with the version: it may have been answered before the change."""
    checked = Checked()
    users, directory = checked.users, checked.directory
    users.put("dave")
    await directory.find("dave", ADDRESS)
    users.put("carol", PUB_ORDERS)
    users.gate = asyncio.get_running_loop().create_future()
    look_up = asyncio.create_task(directory.find("carol", ADDRESS))
    await until(lambda: users.asked == ["dave", "carol"])
    users.now_ms = 400
    await directory.look_for_changes()
    users.gate.set_result(None)
    await look_up
    users.now_ms = 900
    await directory.look_for_changes()
    users.now_ms = 1_000
    await directory.find("carol", ADDRESS)
    assert users.asked == ["dave", "carol", "carol"]


async def test_changes_are_looked_for_by_itself() -> None:
    checked = Checked()
    checked.users.put("carol")
    await checked.directory.find("carol", ADDRESS)
    checked.directory.start()
    await until(lambda: checked.users.versions_asked >= 2)
    await checked.directory.close()
    await checked.directory.close()
