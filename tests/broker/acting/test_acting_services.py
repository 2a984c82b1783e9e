"""When a slave delivers in its master's place, and how that ends.

Covers `broker/acting/member_requests.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.acting.bridge import Bridge
from tests.broker.acting.members import MASTER, Members
from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.due.test_delay_service import send_delayed
from tests.store.store_parts import draft
from tests.timers.timer_parts import NOW_MS, World
from tests.waiting import until
from thermocline.broker.acting.acting_services import ActingServices
from thermocline.broker.acting.half_escapes import HalfEscapes
from thermocline.broker.acting.member_requests import (
    AT_REST_FIELD,
    HISTORY_FIELD,
    LOG_START_FIELD,
    MasterMemberRequests,
    SlaveMemberRequests,
)
from thermocline.broker.cluster import StandIn
from thermocline.broker.due import recover_open
from thermocline.broker.pops import EscapedPops
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.pop_store import Take
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import CorruptDataError, MQError
from thermocline.remoting.handles import REVIVE_GROUP
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.properties import encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC
from thermocline.timers.followed_timers import FollowedTimers
from thermocline.timers.timer_checkpoint import TimerCheckpoint
from thermocline.transactions.half_message import half_draft
from thermocline.transactions.transaction_table import TransactionTable

MASTER_LOG = "127.0.0.1:2"


class Slave:
    """The services, over the delay levels of one store and the timers of another."""

    def __init__(self, broker: ControlBroker, *, escapes: bool = True) -> None:
        self.broker = broker
        self.world = World()
        self.world.close()
        self.members: Any = Members()
        self.bridge: Any = Bridge()
        self.is_following = False
        self.followed: list[str] = []
        self.followed_timers = FollowedTimers(self.world.disk, self.world.config)
        self.services = ActingServices(
            self.members,
            self.bridge,
            delays=broker.parts.due.delays,
            persister=broker.parts.tables.persister,
            pops=EscapedPops(broker.parts.pops.store, broker.parts.tables.offsets, clock=broker.parts.base.clock),
            halves=HalfEscapes(
                broker.parts.base.store,
                broker.parts.tables.offsets,
                self.bridge,
                recover=self._recover,
                wait_ms=lambda: 0,
                clock=broker.parts.base.clock,
            ),
            offsets=broker.parts.tables.offsets,
            has=lambda topic, queue_id, offset: True,
            followed_timers=self.followed_timers,
            open_timers=self._open_timers,
            is_following=lambda: self.is_following,
            escapes=escapes,
        )
        self.requests = SlaveMemberRequests(
            self.members,
            self.services,
            follow=self.followed.append,
            followed_timers=self.followed_timers,
            log_start=lambda: PhysicalOffset(7),
            has_history=True,
        )

    def _recover(self) -> TransactionTable:
        base = self.broker.parts.base
        return recover_open(base.settings, base.store, self.broker.parts.tables.offsets, clock=base.clock).table

    def _open_timers(self) -> Any:
        self.world = self.world.reopen()
        return self.world.timers

    async def ask(self, code: int, header: Any = None) -> RemotingCommand:
        answer: Any = self.requests.routes()[code](None, RemotingCommand.request(code, header))  # type: ignore[arg-type]
        return answer if isinstance(answer, RemotingCommand) else await answer

    async def return_master(self) -> RemotingCommand:
        """What the slave answers to a master that is back."""
        header = ExchangeHAInfoHeader(master_ha_address=MASTER_LOG, master_address=MASTER)
        return await self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, header)


@pytest.fixture
async def slave(tmp_path: Path) -> AsyncIterator[Slave]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        found = Slave(broker)
        found.services.start()
        yield found
        await found.services.close()


async def test_a_slave_delivers_from_the_loss_of_its_master_to_its_return(slave: Slave) -> None:
    slave.world = slave.world.reopen()
    slave.world.send_at(NOW_MS + 1_000, body=b"timed")
    slave.world.close()
    send_delayed(slave.broker, 1, b"delayed")
    assert slave.services.master_address == MASTER
    slave.world.clock.now_ms += 3_000
    slave.broker.clock.now_ms += 1_000
    slave.members.become(StandIn.ACTING)
    await until(lambda: sorted(slave.bridge.bodies) == [b"delayed", b"timed"], what="both went out")
    assert slave.services.master_address is None
    answer = await slave.return_master()
    assert answer.ext_fields == {AT_REST_FIELD: "true", LOG_START_FIELD: "7", HISTORY_FIELD: "true"}
    assert slave.followed == [MASTER_LOG]
    assert slave.services.timers is None
    assert not slave.broker.parts.due.delays.changes.is_unsaved
    checkpoint = TimerCheckpoint.of_master(bytes((await slave.ask(RequestCode.GET_TIMER_CHECK_POINT)).body))
    assert checkpoint.read_time_ms > NOW_MS + 1_000
    assert (await slave.ask(RequestCode.GET_TIMER_METRICS)).body
    assert slave.services.master_address is None, "it is about to register"
    slave.members.become(StandIn.FOLLOWING)
    assert slave.services.master_address == MASTER


async def test_a_beginning_that_fails_is_tried_again(slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed half begun, and nothing was delivered before the master was back."""
    monkeypatch.setattr("thermocline.broker.acting.acting_services.BEGIN_AGAIN_S", 0.05)
    begin, failures = slave.services._pops.begin, [CorruptDataError("no record is there")]

    def failing(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return begin(*arguments, **named)

    monkeypatch.setattr(slave.services._pops, "begin", failing)
    monkeypatch.setattr(slave.services, "_open_timers", lambda: None)
    send_delayed(slave.broker, 1, b"delayed")
    slave.broker.clock.now_ms += 1_000
    slave.members.become(StandIn.ACTING)
    await until(lambda: slave.bridge.bodies == [b"delayed"], what="it goes out")
    assert not failures


async def test_a_slave_whose_master_sends_its_log_does_not_deliver(slave: Slave) -> None:
    send_delayed(slave.broker, 1, b"delayed")
    slave.broker.clock.now_ms += 1_000
    slave.is_following = True
    slave.members.become(StandIn.ACTING)
    await slave.services.settled()
    assert slave.services.timers is None
    slave.is_following = False
    await until(lambda: slave.bridge.bodies == [b"delayed"], what="it goes out")


async def test_a_slave_without_remote_escape_delivers_nothing(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        found = Slave(broker, escapes=False)
        found.members.become(StandIn.ACTING)
        assert not found.services._is_wanted
        assert "false" in ((await found.return_master()).ext_fields or {}).values()


async def test_what_could_not_be_sent_is_no_rest(slave: Slave) -> None:
    slave.world = slave.world.reopen()
    slave.world.send_at(NOW_MS + 1_000, body=b"timed")
    slave.world.close()
    slave.world.clock.now_ms += 3_000
    slave.bridge.refused = {b"timed"}
    slave.members.become(StandIn.ACTING)
    await until(lambda: slave.services.timers is not None, what="the timers are open")
    assert "false" in ((await slave.return_master()).ext_fields or {}).values()


async def test_a_notice_of_a_name_server_has_the_members_looked_up(slave: Slave) -> None:
    await slave.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    assert slave.members.asked_count == 1


async def test_another_slave_that_asks_gets_nothing(slave: Slave) -> None:
    answer = await slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader())
    assert (answer.code, answer.ext_fields, slave.followed) == (0, None, [])


async def test_timers_that_are_off_are_an_error(slave: Slave) -> None:
    requests = SlaveMemberRequests(
        slave.members,
        slave.services,
        follow=slave.followed.append,
        followed_timers=None,
        log_start=lambda: PhysicalOffset(7),
        has_history=True,
    )
    for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
        with pytest.raises(MQError):
            requests.routes()[code](None, RemotingCommand.request(code))  # type: ignore[arg-type]


async def test_a_master_says_where_its_log_is(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        requests = MasterMemberRequests(broker.parts.base.store, address=MASTER, ha_address=MASTER_LOG)
        routes: Any = requests.routes()
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        answer = routes[code](None, RemotingCommand.request(code, ExchangeHAInfoHeader()))
        header = answer.header(ExchangeHAInfoHeader)
        assert (header.master_address, header.master_ha_address) == (MASTER, MASTER_LOG)
        other = ExchangeHAInfoHeader(master_ha_address="127.0.0.1:8", master_address="127.0.0.1:9")
        assert routes[code](None, RemotingCommand.request(code, other)).ext_fields is None
        notice = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        assert routes[notice](None, RemotingCommand.request(notice)).code == 0


async def test_what_is_in_flight_and_what_is_open_goes_out_and_its_progress_is_saved(slave: Slave) -> None:
    parts = slave.broker.parts
    pops, offsets, store = parts.pops.store, parts.tables.offsets, parts.base.store
    store.put(draft(topic="T", body=b"popped"))
    pops.claim("g", [Take(topic="T", queue_id=0, offsets=(0,), next_offset=1)], invisible_ms=1_000)
    half = half_draft(draft(topic="T", body=b"half", properties=encode_properties({"PGROUP": "shop"})))
    store.put(half)
    pops.in_flight.clear()  # as at a slave, which has read none of it
    slave.broker.clock.now_ms += 1_000
    slave.members.become(StandIn.ACTING)
    await until(lambda: slave.bridge.bodies and slave.bridge.halves, what="both went out")
    assert CheckPoint.parse(slave.bridge.bodies[0], broker_name="").offsets == (0,)
    assert bytes(slave.bridge.halves[0].body) == b"half"
    await slave.return_master()
    assert not slave.services._pops.is_open
    assert not offsets.changes.is_unsaved
    topic = pops.log.topic
    assert [offsets.query(topic, REVIVE_GROUP, number) for number in range(8)].count(0) == 1
    assert offsets.query(TRANSACTION_HALF_TOPIC, TRANSACTION_GROUP, 0) == 1
