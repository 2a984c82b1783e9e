"""Brokers with real stores under real controllers, over real sockets: numbers, elections, the SyncStateSet.

Covers `broker/controlled/controlled_broker.py`, `broker/controlled/controller_client.py`,
`broker/controlled/controlled_processor.py`,
`broker/settings/controller_settings.py`, `replication/replica_role.py`, `replication/links/slave_books.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.controlled.store_broker import NAMES, StoreBroker, store_brokers
from tests.controller.controller_under_test import config_for, running
from tests.waiting import until
from thermocline.broker.controlled.control_machine import RETRY_MS_MAX
from thermocline.controller import ControllerServer
from thermocline.controller.state.replica_sets import Sync
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies.replica import EpochEntryCache
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidParameterError, ResponseError, StoreClosedError
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.headers.controller import ElectMasterRequestHeader, NotifyBrokerRoleChangedRequestHeader
from thermocline.remoting.private_requests import PrivateRequestCode, ReplicaHandOverHeader
from thermocline.remoting.request_code import RequestCode


class Controllers:
    """A group in this process."""

    def __init__(self, folder: Path, *, size: int) -> None:
        ports = {f"n{number}": free_port() for number in range(size)}
        self.peers = ";".join(f"{name}-127.0.0.1:{port}" for name, port in ports.items())
        self.text = ";".join(f"127.0.0.1:{port}" for port in ports.values())
        self.servers: dict[str, ControllerServer] = {}
        self._folder = folder

    async def start(self, name: str) -> None:
        """Start a node; its folder is what it was."""
        config = config_for(self._folder / name, peers_text=self.peers, node=name, new_leader_wait_ms=1_000)
        self.servers[name] = ControllerServer(config)
        await self.servers[name].start()

    async def stop(self, name: str) -> None:
        """End a node."""
        await self.servers.pop(name).close()

    async def configure(self, text: bytes) -> None:
        """Change settings of the controller that is alone."""
        async with RemotingClient() as client:
            command = RemotingCommand.request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=text)
            await client.request(self.text, command, timeout_ms=5_000)

    @property
    def leader(self) -> str:
        """The node that serves as leader, if there is one."""
        return next((name for name, server in self.servers.items() if server.node.is_serving), "")

    @property
    def sync(self) -> Sync:
        """The controllers' record of the set; an empty one while none leads."""
        found = self.servers[self.leader].coordinator.sets.syncs.get(NAMES.broker_name) if self.leader else None
        return Sync(cluster=NAMES.cluster) if found is None else found

    @property
    def members(self) -> set[int]:
        """The SyncStateSet."""
        return set(self.sync.set)


@contextlib.asynccontextmanager
async def controllers_running(folder: Path, *, size: int = 1) -> AsyncIterator[Controllers]:
    group = Controllers(folder / "controllers", size=size)
    names = [f"n{number}" for number in range(size)]
    try:
        for name in names:
            await group.start(name)
        await until(lambda: group.leader, what="a controller leads")
        yield group
    finally:
        for name in list(group.servers):
            await group.stop(name)


@contextlib.asynccontextmanager
async def replica_set(
    folder: Path, *, size: int, count: int = 3
) -> AsyncIterator[tuple[Controllers, list[StoreBroker]]]:
    """Controllers, and brokers that are in sync, the first one their master."""
    async with (
        controllers_running(folder, size=size) as group,
        store_brokers(folder, group.text, count=count) as brokers,
    ):
        for seed, broker in enumerate(brokers):
            await broker.start(seed=seed)
            await broker.driver.wait_role()
        await until(lambda: group.members == set(range(1, count + 1)), what="all brokers are in sync")
        yield group, brokers


def same_logs(brokers: list[StoreBroker]) -> bool:
    """Whether their logs are equal, byte by byte."""
    first, *others = brokers
    log = first.store.commit_log
    return all(
        other.end_offset == first.end_offset
        and all(
            bytes(file.view) == bytes(log.files.find(file.base_offset).view) for file in other.store.commit_log.files
        )
        for other in others
    )


async def elect(group: Controllers, broker_id: int) -> None:
    """An operator has a broker elected."""
    header = ElectMasterRequestHeader(
        cluster_name=NAMES.cluster, broker_name=NAMES.broker_name, broker_id=broker_id, designate_elect=True
    )
    async with RemotingClient() as client:
        command = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
        await client.request(group.text, command, timeout_ms=5_000)


def known_set_epoch(broker: StoreBroker) -> int:
    """The epoch of the newest set that a broker has heard of."""
    newest = broker.driver.machine._sets._newest
    return 0 if newest is None else newest.set_epoch


async def test_brokers_get_numbers_and_keep_them_over_restarts(tmp_path: Path) -> None:
    async with controllers_running(tmp_path) as group, store_brokers(tmp_path, group.text, count=2) as (first, second):
        await first.start()
        await first.driver.wait_role()
        assert first.is_master
        await second.start()
        await second.driver.wait_role()
        assert (first.number, second.number) == (1, 2)
        assert (tmp_path / "broker-1" / "brokerIdentity").read_text() == "c#broker-a#2"
        for broker, number in ((second, 2), (first, 1)):
            await broker.close()
            await broker.start()
            await broker.driver.wait_role()
            assert broker.number == number


async def test_three_that_start_together_have_one_master_and_three_numbers(tmp_path: Path) -> None:
    async with controllers_running(tmp_path) as group, store_brokers(tmp_path, group.text, count=3) as brokers:
        for seed, broker in enumerate(brokers):
            await broker.start(seed=seed)
        await until(lambda: all(broker.role is not None for broker in brokers), what="all have a role")
        assert {broker.number for broker in brokers} == {1, 2, 3}
        assert sum(broker.is_master for broker in brokers) == 1
        await until(lambda: group.members == {1, 2, 3}, what="all are in sync")


async def test_the_set_shrinks_and_grows_and_puts_wait_for_it(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1) as (group, (first, second, third)):
        await first.put_acknowledged(2_000)
        assert second.end_offset == third.end_offset == first.end_offset
        await third.close()
        await until(lambda: group.members == {1, 2}, what="the broker that is gone has left the set")
        await first.put_acknowledged(100)
        await third.start()
        await until(lambda: group.members == {1, 2, 3}, what="it is in sync again")
        await first.put_acknowledged(100)
        assert same_logs([first, second, third])


async def test_a_learner_follows_and_is_never_waited_for(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1, count=1) as (group, (first,)):
        learner = StoreBroker(tmp_path / "learner", group.text, is_learner=True)
        await learner.start()
        try:
            await first.put_acknowledged(500)
            await until(lambda: same_logs([first, learner]), what="the learner has the log")
            assert group.members == {1}
            assert learner.link is not None
            await until(lambda: learner.confirm_offset == first.end_offset, what="it has the confirmed offset")
        finally:
            await learner.close()


async def test_a_master_that_dies_is_replaced_and_its_tail_goes(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1) as (group, (first, second, third)):
        await first.put_acknowledged(300)
        confirmed = first.end_offset
        # It takes messages that no slave gets any more.
        assert first._ha_port is not None
        first._ha_port.close()
        await first.driver.close()
        first.put(50)
        await first.close()
        await until(lambda: second.is_master or third.is_master, what="another broker is the master")
        master, slave = (second, third) if second.is_master else (third, second)
        assert master.end_offset >= confirmed
        await until(lambda: group.members == {2, 3}, what="the slave is in sync")
        await master.put_acknowledged(100)
        await first.start()
        await until(lambda: group.members == {1, 2, 3}, what="the old master is in sync")
        assert [alignment.end_offset for alignment in first.cuts] == [confirmed]
        await master.put_acknowledged(10)
        assert same_logs([first, master, slave])
        assert list(first.epochs) == list(master.epochs)


async def test_the_controller_that_leads_dies_and_the_set_goes_on(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=3) as (group, brokers):
        first, second, third = brokers
        roles = [broker.role for broker in brokers]
        await group.stop(group.leader)
        await first.put_acknowledged(100)
        await until(lambda: group.leader, what="another controller leads")
        await third.close()
        await until(lambda: group.members == {1, 2}, what="the set has changed under the new one")
        assert [first.role, second.role] == roles[:2], "an election of controllers elects no master"


async def test_without_controllers_a_set_goes_on_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with replica_set(tmp_path, size=1, count=2) as (group, brokers):
        first, _ = brokers
        roles = [broker.role for broker in brokers]
        await group.stop("n0")
        await first.put_acknowledged(50)
        await until(
            lambda: all(broker.driver.machine._retry_ms == RETRY_MS_MAX for broker in brokers),
            what="both have asked several times",
        )
        await first.put_acknowledged(50)
        assert [broker.role for broker in brokers] == roles
        assert same_logs(brokers)
        warnings = [record for record in caplog.records if "no controller answers" in record.message]
        assert len(warnings) == 2, "one of each broker, however often it has asked"
        await group.start("n0")
        await until(lambda: group.leader, what="the controller is back")
        third = StoreBroker(tmp_path / "third", group.text)
        await third.start()
        try:
            await until(lambda: group.members == {1, 2, 3}, what="a new broker is in sync")
        finally:
            await third.close()
        assert [broker.role for broker in brokers] == roles


async def test_an_operators_election_moves_the_master(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1) as (group, (first, second, third)):
        await first.put_acknowledged(100)
        await elect(group, 2)
        await until(lambda: second.is_master and not first.is_master, what="the roles have changed")
        await until(lambda: group.members == {1, 2, 3}, what="all are in sync again")
        await second.put_acknowledged(100)
        assert same_logs([first, second, third])


async def test_a_master_that_hands_over_hears_of_the_election_without_a_notice(tmp_path: Path) -> None:
    """It would take writes again after the pause, which the next master does not have."""
    async with replica_set(tmp_path, size=1) as (group, brokers):
        first = brokers[0]
        await group.configure(b"notifyBrokerRoleChanged=false")
        for broker in brokers:
            broker.settings = replace(broker.settings, replica_info_interval_ms=60_000)
        await until(
            lambda: all((broker.driver.machine.due_ms or 0) > monotonic_ms() + 30_000 for broker in brokers),
            what="no broker asks the controllers by itself",
        )
        async with RemotingClient() as client:
            header = ReplicaHandOverHeader(broker_id=2, pause_ms=10_000)
            command = RemotingCommand.request(PrivateRequestCode.REPLICA_HAND_OVER, header)
            answer = await client.request(first.address, command, timeout_ms=15_000)
            assert b"true" in bytes(answer.body)
            begun = asyncio.get_running_loop().time()
            await elect(group, 2)
        await until(lambda: not first.is_master, what="it has heard of the election")
        assert asyncio.get_running_loop().time() - begun < 10, "within the pause"


async def test_a_master_that_cannot_serve_resigns_and_another_of_the_set_is_elected(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1) as (group, (first, second, third)):
        await first.put_acknowledged(100)
        confirmed = first.end_offset
        set_epoch = group.sync.set_epoch
        await until(
            lambda: all(known_set_epoch(broker) == set_epoch for broker in (second, third)), what="slaves have heard it"
        )
        second.is_unfit = True
        await elect(group, 2)
        await until(lambda: second.role_error, what="the elected broker fails")
        await until(lambda: first.is_master or third.is_master, what="another one is elected")
        master = first if first.is_master else third
        assert master.end_offset >= confirmed
        await until(lambda: group.members == {1, 2, 3}, what="all are in sync, the one that resigned is a slave")
        await master.put_acknowledged(10)
        assert not second.is_master
        assert same_logs([first, second, third])


async def test_a_master_that_alone_may_be_elected_tries_again(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1, count=2) as (group, (first, second)):
        await second.close()
        await until(lambda: group.members == {1}, what="the slave has left the set")
        await first.close()
        first.is_unfit = True
        await first.start()
        await second.start()
        await until(lambda: first.role_error, what="the elected broker fails")
        epoch = group.sync.master_epoch
        await until(lambda: group.sync.master_epoch > epoch, what="it has resigned")
        assert not second.is_master, "it lacks messages perhaps, and is not elected"
        first.is_unfit = False
        await until(lambda: first.is_master, what="it is elected again")
        await until(lambda: group.members == {1, 2}, what="the slave is in sync")


async def test_a_master_whose_log_has_failed_resigns_when_the_others_have_all_of_it(tmp_path: Path) -> None:
    """A flush has failed, for example: the broker takes no writes until its log is opened again."""
    async with replica_set(tmp_path, size=1) as (_, (first, second, third)):
        await first.put_acknowledged(100)
        first.put(10)
        end_offset = first.end_offset
        first.store.commit_log.fail("flush failed")
        await until(lambda: second.is_master or third.is_master, what="another one is elected")
        master = second if second.is_master else third
        assert master.end_offset >= end_offset
        assert not first.is_master
        with pytest.raises(StoreClosedError):
            await first.close()
        await master.put_acknowledged(10)


async def test_a_master_whose_log_has_failed_stays_when_it_is_alone_in_the_set(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1, count=2) as (group, (first, second)):
        await second.close()
        await until(lambda: group.members == {1}, what="the slave has left the set")
        first.store.commit_log.fail("flush failed")
        epoch, asked_ms = group.sync.master_epoch, first.driver.machine._asked_ms
        await until(lambda: first.driver.machine._asked_ms > asked_ms, what="it has asked the controller since")
        assert (group.sync.master_id, group.sync.master_epoch) == (1, epoch)
        assert first.is_master


async def test_what_tools_and_slaves_ask(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1, count=2) as (_, (first, second)):
        await first.put_acknowledged(10)

        async def ask(broker: StoreBroker, code: int, header: Any = None) -> RemotingCommand:
            return await client.request(broker.address, RemotingCommand.request(code, header), timeout_ms=5_000)

        async with RemotingClient() as client:
            answer = await ask(first, RequestCode.GET_BROKER_EPOCH_CACHE)
            epochs = EpochEntryCache.decode(answer.body)
            assert (epochs.cluster_name, epochs.broker_name, epochs.broker_id) == ("c", "broker-a", 0)
            assert [(entry.epoch, entry.start_offset) for entry in epochs.epoch_list] == [(1, 0)]
            assert epochs.max_offset == first.end_offset
            answer = await ask(second, RequestCode.GET_BROKER_EPOCH_CACHE)
            assert EpochEntryCache.decode(answer.body).broker_id == 2
            answer = await ask(first, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader())
            named = answer.header(ExchangeHAInfoHeader)
            assert (named.master_address, named.master_ha_address) == (first.address, first.ha_address)
            answer = await ask(second, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader())
            assert answer.header(ExchangeHAInfoHeader).master_ha_address is None
            other = ExchangeHAInfoHeader(master_ha_address="127.0.0.1:1", master_address="127.0.0.1:2")
            with pytest.raises(ResponseError):
                await ask(second, RequestCode.EXCHANGE_BROKER_HA_INFO, other)
            # A notice of an epoch that no controller has changes nothing, now or later.
            forged = NotifyBrokerRoleChangedRequestHeader(
                master_address=second.address, master_epoch=1 << 30, sync_state_set_epoch=9, master_broker_id=2
            )
            await ask(first, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, forged)
            await first.put_acknowledged(10)
            assert first.is_master
            assert not second.is_master


async def test_a_copy_of_a_brokers_store_takes_no_part_while_that_broker_is_alive(tmp_path: Path) -> None:
    async with replica_set(tmp_path, size=1, count=2) as (group, (first, second)):
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / "broker-1" / "brokerIdentity", tmp_path / "copy")
        copy = StoreBroker(tmp_path / "copy", group.text)
        await copy.start()
        await until(
            lambda: "alive at another address" in copy.driver.machine._last_complaint, what="the controllers refuse it"
        )
        await first.close()
        await until(lambda: second.is_master, what="the living broker of this number is elected")
        assert copy.role is None
        assert group.members == {2}
        await copy.close()


async def test_a_store_of_another_broker_is_refused(tmp_path: Path) -> None:
    async with running(config_for(tmp_path / "controller")) as server:
        broker = StoreBroker(tmp_path / "broker", server.config.peers.address)
        broker.folder.mkdir()
        (broker.folder / "brokerIdentity").write_text("c#broker-b#1")
        with pytest.raises(InvalidParameterError, match="brokerName=broker-b"):
            await broker.start()
        await broker.close()
