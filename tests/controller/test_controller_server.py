"""One controller on a port: requests, elections of its own, notices, limits, settings, its folder.

Covers `controller/coordinator.py`, `controller/processor.py`, `controller/role_notices.py`,
`controller/controller_config.py`, `controller/consensus/consensus_node.py`, `namesrv/port_config.py`,
`namesrv/port_settings.py`, `namesrv/changed_settings.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.controller.controller_under_test import CLUSTER, NAME, Caller, config_for, running
from tests.waiting import until
from thermocline.controller import ControllerServer
from thermocline.controller.consensus.peer_messages import Envelope, RequestVote
from thermocline.controller.controller_config import CONTROLLER
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies.replica import BrokerReplicasInfo, ControllerStatus, SyncStateSet
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, RemotingServer
from thermocline.remoting.errors import InvalidParameterError, SettingError, UnavailableError
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import PropertySource, parse_config_text


class Notices:
    """A broker's port: keeps the notices that it is sent."""

    def __init__(self) -> None:
        self.received: list[tuple[NotifyBrokerRoleChangedRequestHeader, SyncStateSet]] = []

    def handle(self, _: Connection, command: RemotingCommand) -> None:
        assert command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED
        assert command.is_oneway
        header = command.header(NotifyBrokerRoleChangedRequestHeader)
        self.received.append((header, SyncStateSet.decode(command.body)))

    def connection_opened(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        pass


async def master_of(caller: Caller) -> int | None:
    answer = await caller.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=NAME))
    return answer.header(GetReplicaInfoResponseHeader).master_broker_id


async def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config):
        caller = await Caller.connect(config)
        await caller.make_pair()
    async with running(config):
        caller = await Caller.connect(config)
        assert await master_of(caller) == 1
        answer = await caller.ask(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
            GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=NAME),
        )
        assert answer.header(GetNextBrokerIdResponseHeader).next_broker_id == 3
        states = await caller.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["broker-a"]')
        found = BrokerReplicasInfo.decode(states.body).replicas_info_table[NAME]
        assert [replica.broker_id for replica in found.in_sync_replicas] == [1, 2]
        assert not any(replica.alive for replica in found.in_sync_replicas)


async def test_a_master_that_falls_silent_is_replaced_and_the_living_are_told(tmp_path: Path) -> None:
    notices = Notices()
    broker = RemotingServer(notices)
    port = await broker.start("127.0.0.1", 0)
    config = config_for(tmp_path)
    async with running(config):
        caller, second = await Caller.connect(config), await Caller.connect(config)
        for broker_id in (1, 2):
            await caller.apply_id(broker_id, address=f"127.0.0.1:{port}")
        await second.beat(2)
        await caller.beat(1)
        await caller.elect(1)
        await caller.alter([1, 2])
        await caller.beat(1, timeout_ms=1)
        await until(
            lambda: any(header.master_broker_id == 2 for header, _ in notices.received), what="the notice of replica 2"
        )
        header, members = notices.received[-1]
        assert (header.master_broker_id, header.master_epoch, header.sync_state_set_epoch) == (2, 2, 3)
        assert members == SyncStateSet(sync_state_set=[2], sync_state_set_epoch=3)
        assert await master_of(second) == 2
        await until(lambda: caller.connection.is_closed, what="the silent broker's connection is closed")
    await broker.close()


async def test_the_scan_for_silent_brokers_comes_when_the_first_of_them_expires(tmp_path: Path) -> None:
    """Between its intervals too: a frozen master is replaced no later than its own time limit says."""
    config = config_for(tmp_path, new_leader_wait_ms=0, scan_brokers_ms=3_600_000, scan_masters_ms=3_600_000)
    server = ControllerServer(config, clock=lambda: 100.0)
    await server.start()
    await until(lambda: server.node.is_serving, what="the controller leads")
    assert server.coordinator.scan_delay_ms(5_000) == 5_000
    caller = await Caller.connect(config)
    await caller.make_pair()  # their time limit is a minute
    assert server.coordinator.scan_delay_ms(5_000) == 5_000
    await caller.beat(1, timeout_ms=1_500)
    assert server.coordinator.scan_delay_ms(5_000) == 1_501
    await server.close()


async def test_a_master_whose_connection_closes_is_replaced_at_once(tmp_path: Path) -> None:
    config = config_for(tmp_path, scan_masters_ms=3_600_000, scan_brokers_ms=3_600_000)
    async with running(config) as server:
        caller, second = await Caller.connect(config), await Caller.connect(config)
        await caller.make_pair()
        await second.beat(2)
        caller.connection.close()
        await until(lambda: server.coordinator.sets.syncs[NAME].master_id == 2, what="replica 2 is the master")


async def test_a_new_leader_replaces_no_master_before_it_can_know_who_is_alive(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config):
        caller = await Caller.connect(config)
        await caller.make_pair()
    patient = config_for(tmp_path, peers_text=config.peers_text, new_leader_wait_ms=3_600_000)
    async with running(patient) as server:
        caller = await Caller.connect(patient)
        await caller.beat(2)
        refused = await caller.elect(2)
        assert refused.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert "newLeaderElectionWaitMs" in (refused.remark or "")
        server.coordinator.replace_dead_masters()
        await until(lambda: not server.coordinator._elections, what="the election has ended")
        assert await master_of(caller) == 1
        # once the master was heard, its death is known
        first = await Caller.connect(patient)
        await first.beat(1)
        assert (await caller.elect(2)).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        first.connection.close()
        await until(lambda: server.coordinator.sets.syncs[NAME].master_id == 2, what="replica 2 is the master")


async def test_a_controller_that_was_frozen_waits_as_a_new_leader_does(tmp_path: Path) -> None:
    now_s = 0.0
    config = config_for(tmp_path, new_leader_wait_ms=10_000, scan_brokers_ms=3_600_000, scan_masters_ms=3_600_000)
    server = ControllerServer(config, clock=lambda: now_s)
    await server.start()
    await until(lambda: server.node.is_serving, what="the controller leads")
    now_s = 1.0
    caller = await Caller.connect(config)
    await caller.make_pair()
    for _ in range(10):  # heartbeats without the master, until it may be replaced
        now_s += 1.0
        assert server.node.is_serving
        await caller.beat(2, timeout_ms=20_000)
        await caller.beat(1, timeout_ms=500)
    now_s += 15  # frozen: both have missed heartbeats
    await caller.beat(2, timeout_ms=20_000)
    assert (await caller.elect(2)).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    for _ in range(11):
        now_s += 1.0
        assert server.node.is_serving
    assert (await caller.elect(2)).code == ResponseCode.SUCCESS
    await server.close()


async def test_an_operator_elects_and_the_master_that_stays_is_answered_with_its_data(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config):
        caller = await Caller.connect(config)
        await caller.make_pair()
        stays = await caller.elect(1, designate=True)
        assert stays.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        assert stays.header(ElectMasterResponseHeader).master_epoch == 1
        elected = (await caller.elect(2, designate=True)).header(ElectMasterResponseHeader)
        assert (elected.master_broker_id, elected.master_epoch, elected.sync_state_set_epoch) == (2, 2, 3)


async def test_metadata_and_status(tmp_path: Path) -> None:
    config = config_for(tmp_path, group="g")
    async with running(config):
        caller = await Caller.connect(config)
        await caller.make_pair()
        header = (await caller.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)).header(GetMetaDataResponseHeader)
        assert header == GetMetaDataResponseHeader(
            group="g",
            controller_leader_id="n0",
            controller_leader_address=config.peers.address,
            is_leader=True,
            peers=f"n0:{config.peers.address};",
        )
        status = ControllerStatus.decode((await caller.ask(PrivateRequestCode.CONTROLLER_STATUS)).body)
        assert (status.node, status.is_leader, status.live_brokers, status.failure) == ("n0", True, 2, None)
        assert status.replica_sets[NAME].master_broker_id == 1


async def test_requests_without_what_they_need(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config):
        caller = await Caller.connect(config)
        header = BrokerHeartbeatRequestHeader(cluster_name=CLUSTER, broker_addr="", broker_name=NAME)
        answer = await caller.ask(RequestCode.BROKER_HEARTBEAT, header)
        assert (answer.code, answer.remark) == (
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            "Heart beat with empty brokerId",
        )
        assert (await caller.beat(1)).remark == "Heart beat success"
        empty = await caller.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
        assert empty.code == ResponseCode.SYSTEM_ERROR
        unknown = await caller.ask(RequestCode.REGISTER_BROKER)
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_what_strangers_can_make_it_remember_is_bounded(tmp_path: Path) -> None:
    config = config_for(tmp_path, replica_sets_max=2, set_replicas_max=2, live_brokers_max=2)
    async with running(config) as server:
        caller = await Caller.connect(config)
        for name in ("a", "b"):
            assert (await caller.apply_id(1, name=name)).code == ResponseCode.SUCCESS
            assert (await caller.beat(1, name=name)).code == ResponseCode.SUCCESS
        assert (await caller.apply_id(1, name="c")).code == ResponseCode.SYSTEM_BUSY
        assert (await caller.beat(1, name="c")).code == ResponseCode.SYSTEM_BUSY
        assert (await caller.beat(1, name="a")).code == ResponseCode.SUCCESS
        assert (await caller.apply_id(2, name="a")).code == ResponseCode.SUCCESS
        assert (await caller.apply_id(3, name="a")).code == ResponseCode.SYSTEM_BUSY
        long = await caller.apply_id(1, name="n" * 300)
        assert long.code == ResponseCode.INVALID_PARAMETER
        numbers = CleanControllerBrokerDataRequestHeader(
            broker_name="a", broker_controller_ids_to_clean="1;" * 1_000, is_clean_living_broker=True
        )
        assert (await caller.ask(RequestCode.CLEAN_BROKER_DATA, numbers)).code == ResponseCode.INVALID_PARAMETER
        assert server.limits.totals == {"replicaSetsMax": 1, "liveBrokersMax": 1, "replicasPerSetMax": 1}


async def test_settings_are_shown_and_changed_and_kept(tmp_path: Path) -> None:
    config = config_for(
        tmp_path / "data",
        config_store_path=str(tmp_path / "controller.properties"),
        init_user='{"username": "root", "password": "secret"}',
    )
    async with running(config) as server:
        caller = await Caller.connect(config)
        shown = parse_config_text(bytes((await caller.ask(RequestCode.GET_CONTROLLER_CONFIG)).body).decode())
        assert shown["controllerDLegerPeers"] == config.peers_text
        assert (shown["initAuthenticationUser"], shown["controllerType"]) == ("***", "DLedger")
        change = b"enableElectUncleanMaster=true\nunknownName=1"
        assert (await caller.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, body=change)).code == ResponseCode.SUCCESS
        assert server.config.elect_unclean
        for refused, code in (
            (b"configStorePath=/tmp", ResponseCode.NO_PERMISSION),
            (b"controllerDLegerPeers=n0-a:1", ResponseCode.INVALID_PARAMETER),
            (b"controllerType=jRaft", ResponseCode.INVALID_PARAMETER),
            (b"scanInactiveMasterInterval=x", ResponseCode.INVALID_PARAMETER),
        ):
            assert (await caller.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, body=refused)).code == code
    flags = {"configStorePath": config.config_store_path, "controllerStorePath": "/d"}
    flags |= {"controllerDLegerPeers": config.peers_text, "controllerDLegerSelfId": "n0"}
    assert CONTROLLER.read(config_path=None, environment={}, flags=flags).elect_unclean


async def test_peers_alone_may_send_messages_of_the_consensus(tmp_path: Path) -> None:
    peers = f"n0-127.0.0.1:{config_for(tmp_path).peers.address.rpartition(':')[2]};n1-127.0.0.2:9;n2-127.0.0.3:9"
    server = ControllerServer(config_for(tmp_path, peers_text=peers))
    await server.start()
    caller = await Caller.connect(server.config)

    async def send(sender: str, group: str = "default") -> int:
        message = RequestVote(term=50, last_log_index=1_000, last_log_term=50)
        envelope = Envelope(group=group, sender=sender, starts=1, sequence=1, message=message)
        return (await caller.ask(PrivateRequestCode.CONTROLLER_CONSENSUS, body=envelope.encode())).code

    assert await send("n9") == ResponseCode.NO_PERMISSION
    assert await send("n1", group="other") == ResponseCode.NO_PERMISSION
    assert await send("n1") == ResponseCode.NO_PERMISSION  # from 127.0.0.1, which is not its address
    garbage = await caller.ask(PrivateRequestCode.CONTROLLER_CONSENSUS, body=b"\x80garbage")
    assert garbage.code == ResponseCode.SYSTEM_ERROR
    assert server.node.term < 50
    await server.close()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, b"{syncStateSet:[%b]}" % (b"1," * 50_000)),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b"['b',%b]" % (b'"b",' * 50_000)),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b'["b"%b]' % (b',"b"' * 300_000)),
    ],
    ids=["replicas", "names in the dialect", "names"],
)
async def test_bodies_that_take_long_to_read_are_refused(tmp_path: Path, code: int, body: bytes) -> None:
    """4 MiB of Java's dialect took 4.5 s, in which a controller loses the lead."""
    async with running(config_for(tmp_path)) as server:
        caller = await Caller.connect(server.config)
        header = AlterSyncStateSetRequestHeader(broker_name=NAME, master_broker_id=1, master_epoch=1)
        answer = await caller.ask(code, header, body=body)
        assert "the body is too large" in (answer.remark or "")
        answer = await caller.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b"['%b',]" % NAME.encode())
        assert answer.code == ResponseCode.SUCCESS


async def test_refused_messages_of_a_peer_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a NAT a group had no leader, and no line of any log said why."""
    peers = f"n0-127.0.0.1:{config_for(tmp_path).peers.address.rpartition(':')[2]};n1-127.0.0.2:9;n2-127.0.0.3:9"
    server = ControllerServer(config_for(tmp_path, peers_text=peers))
    await server.start()
    caller = await Caller.connect(server.config)
    for sequence in range(3):
        message = RequestVote(term=50, last_log_index=1_000, last_log_term=50)
        envelope = Envelope(group="default", sender="n1", starts=1, sequence=sequence, message=message)
        await caller.ask(PrivateRequestCode.CONTROLLER_CONSENSUS, body=envelope.encode())
    assert caplog.text.count("messages of controller n1 are refused: they come from 127.0.0.1") == 1
    await server.close()


@pytest.mark.parametrize(("host", "is_warned"), [("10.0.0.1", True), ("127.0.0.1", False)])
async def test_one_that_its_peers_cannot_reach_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, is_warned: bool
) -> None:
    """A configuration of RocketMQ's, whose controller listens at all addresses, made a group without a leader."""
    server = ControllerServer(config_for(tmp_path, peers_text=f"n0-{host}:{free_port()}"))
    await server.start()
    await server.close()
    assert ("no other machine reaches this controller" in caplog.text) == is_warned


async def test_a_peer_that_is_away_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    peers = f"n0-127.0.0.1:{port};n1-127.0.0.2:{port};n2-127.0.0.3:{port}"
    server = ControllerServer(config_for(tmp_path, peers_text=peers))
    await server.start()
    await until(lambda: "no connection to controller n1" in caplog.text)
    await server.close()
    assert caplog.text.count("no connection to controller n1") == 1


async def test_a_group_on_a_machine_with_several_addresses(tmp_path: Path) -> None:
    """The system chose 127.0.0.1 for connections between 127.0.0.2 and 127.0.0.3, and each message was refused."""
    port = free_port()
    hosts = {f"n{number}": f"127.0.0.{number + 2}" for number in range(3)}
    peers = ";".join(f"{node}-{host}:{port}" for node, host in hosts.items())
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for node, host in hosts.items():
            servers.append(ControllerServer(config_for(tmp_path / node, peers_text=peers, node=node, listen_host=host)))
            stack.push_async_callback(servers[-1].close)
            await servers[-1].start()
        await until(lambda: any(server.node.is_serving for server in servers), what="a controller leads")
        await until(lambda: all(server.node.leader for server in servers), what="the others follow it")


async def test_a_failed_disk_ends_its_part_for_good(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config) as server:
        caller = await Caller.connect(config)
        await caller.make_pair()
        journal = server.node._log._journal  # type: ignore[union-attr]

        def fail() -> None:
            raise OSError(5, "Input/output error")

        journal.flush = fail  # type: ignore[method-assign]
        answer = await caller.apply_id(3)
        assert answer.code in (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY)
        assert (await caller.elect(2)).code == ResponseCode.CONTROLLER_NOT_LEADER
        status = ControllerStatus.decode((await caller.ask(PrivateRequestCode.CONTROLLER_STATUS)).body)
        assert "Input/output error" in (status.failure or "")


async def test_a_folder_that_is_not_this_controllers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="controllerStorePath is needed"):
        ControllerServer(config_for(tmp_path, store_path=""))
    (tmp_path / "official" / "dledger-n0").mkdir(parents=True)
    with pytest.raises(SettingError, match="RocketMQ's controller"):
        ControllerServer(config_for(tmp_path / "official"))
    config = config_for(tmp_path / "taken")
    async with running(config):
        second = ControllerServer(config_for(tmp_path / "taken"))
        with pytest.raises(UnavailableError):
            await second.start()
        await second.close()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "one, three or five"),
        ({"controllerDLegerPeers": "n0-a:1"}, "controllerDLegerSelfId"),
        ({"controllerDLegerPeers": "n0-a:1", "controllerDLegerSelfId": "n0", "controllerType": "jRaft"}, "SOFAJRaft"),
        ({"controllerDLegerPears": "n0-a:1"}, "did you mean controllerDLegerPeers"),
    ],
)
def test_settings_that_name_no_controller_are_refused(values: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        CONTROLLER.load([PropertySource(place="file", values=values)])


def test_a_configuration_of_rocketmq_is_taken() -> None:
    values = {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": "n0-127.0.0.1:9877;n1-127.0.0.1:9878;n2-127.0.0.1:9879",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": "/tmp/c",
        "enableElectUncleanMaster": "true",
        "processReadEvent": "true",
        "listenPort": "9876",
        "controllerThreadPoolNums": "16",
    }
    loaded = CONTROLLER.load([PropertySource(place="file", values=values)])
    assert (loaded.config.group, loaded.config.elect_unclean, loaded.config.confirm_reads) == ("group1", True, True)
    assert loaded.ignored == ("listenPort", "controllerThreadPoolNums")


def test_a_group_needs_a_name() -> None:
    with pytest.raises(InvalidParameterError, match="controllerDLegerGroup"):
        config_for(Path("/tmp"), group=" ")


async def test_reads_are_confirmed_by_a_majority_on_demand(tmp_path: Path) -> None:
    config = config_for(tmp_path, confirm_reads=True)
    async with running(config) as server:
        caller = await Caller.connect(config)
        await caller.make_pair()
        before = server.node.applied_index
        assert await asyncio.wait_for(master_of(caller), 10) == 1
        assert server.node.applied_index == before + 1
