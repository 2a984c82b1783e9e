"""Controlled broker: keeps a broker in the role that the controllers give it.

    questions     control_machine.py asks, one at a time; a role that it wants is changed to before the next question
    heartbeats    every second to all controllers, while the machine sends them: epoch, end of the log, confirm offset
    changes       of a master's SyncStateSet, beside the questions (set_changes.py)
    replication   the master itself names its port (EXCHANGE_BROKER_HA_INFO): controllers do not have it

Rules
  - A broker becomes a slave at once, and follows when the master has named its port.
  - A change that fails is tried again by the RoleChanger, until this broker gets another role; heartbeats and questions
    go on meanwhile.
  - A master that fails to serve for as long as a dead one would stay (controllerHeartBeatTimeoutMills) is as good as
    dead: it resigns. First its last try has to end: nothing is acknowledged in its epoch from then on.
  - So does a master whose log takes no writes until it is opened again (a flush has failed, it is fenced), once all
    others of the SyncStateSet have all of it. As a slave it opens the log again. Where it is alone in the set, it
    stays, and serves reads.
  - While a master hands over, it asks the controllers who the master is as often as notices may have it ask: it takes
    writes again after the pause, and must have heard of the election by then.
  - At a stop the connections to the controllers close first: another master is elected while this broker finishes.
Owner: the hot process's loop. Bound: three tasks and those of the client.
Source: broker/controller/ReplicasManager.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol

from thermocline.broker.controlled.control_machine import MASTER_ID, ControlMachine, RoleChange
from thermocline.broker.controlled.controller_client import ControllerClient
from thermocline.broker.controlled.identity_files import BrokerNames
from thermocline.broker.controlled.questions import Answer, Ask, Question
from thermocline.broker.controlled.set_changes import LOOK_MS, SetChanges
from thermocline.broker.controlled.wire_questions import decode_answer, encode_question
from thermocline.broker.settings import ControllerSettings
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.replication import HandOver, ReplicaRole, RoleChanger, StaleEpochError, SyncStateSet

logger = logging.getLogger(__name__)

HA_ADDRESS_TIMEOUT_MS = 1_000
HA_ADDRESS_RETRY_S = 0.5
STEP_S_MAX = 1.0


class ReplicaState(Protocol):
    """What heartbeats say of this broker's log."""

    @property
    def last_epoch(self) -> int:
        """Of the log; 0 without one."""
        ...

    @property
    def served_epoch(self) -> int:
        """The newest epoch that this broker has served in as its master, in this life of its process; 0 if none."""
        ...

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where the log ends."""
        ...

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """The log below it is on all brokers of the SyncStateSet, by the last transfer or report."""
        ...

    @property
    def is_failed(self) -> bool:
        """Whether the log takes no writes until it is opened again."""
        ...

    @property
    def sync_state_set(self) -> SyncStateSet | None:
        """While this broker is the master of an epoch."""
        ...

    @property
    def hand_over(self) -> HandOver | None:
        """Likewise."""
        ...


class ControlledBroker:
    """One broker's. `start` once, `close` as often as wanted."""

    def __init__(
        self,
        machine: ControlMachine,
        client: ControllerClient,
        *,
        names: BrokerNames,
        address: str,
        changer: RoleChanger,
        replica: ReplicaState,
        settings: Callable[[], ControllerSettings],
        brokers: RemotingClient,
        clock: Callable[[], int],
        random: Random,
    ) -> None:
        """`address`: where this broker serves. `brokers`: to ask the master; closed here. `clock`: ms, for
        intervals."""
        self.machine = machine
        self._client = client
        self._names = names
        self._address = address
        self._changer = changer
        self._replica = replica
        self._settings = settings
        self._brokers = brokers
        self._clock = clock
        self._random = random
        self._changes: SetChanges | None = None
        self._news = asyncio.Event()
        """Something has come that `_follow_controllers` has to act on."""
        self._has_role = asyncio.Event()
        self._is_changing = False
        self._failing: RoleChange | None = None
        """To the master of an epoch: it has failed, and is tried again."""
        self._failing_since_ms = 0
        self._identity_error = ""
        self._ha_search: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; returns at once."""
        assert not self._tasks
        loop = asyncio.get_running_loop()
        for name, step in (
            ("questions", self._follow_controllers),
            ("heartbeats", self._send_heartbeats),
            ("SyncStateSet", self._change_set),
        ):
            self._tasks.append(loop.create_task(_repeat(step), name=f"controllers: {name}"))

    async def wait_role(self) -> None:
        """Return when this broker has its first role."""
        await self._has_role.wait()

    def noticed(self, master_epoch: int) -> None:
        """A controller has sent NOTIFY_BROKER_ROLE_CHANGED."""
        self.machine.noticed(master_epoch, self._clock())
        self._news.set()

    async def close(self) -> None:
        """Stop: the controllers see this broker go. Idempotent."""
        tasks, self._tasks = self._tasks, []
        if self._ha_search is not None:
            tasks.append(self._ha_search)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()
        await self._brokers.close()

    # -- questions and roles -------------------------------------------------------------------------------------------

    async def _follow_controllers(self) -> None:
        """Change the role, or ask a question, or wait for the next one."""
        machine, now_ms, hand_over = self.machine, self._clock(), self._replica.hand_over
        if machine.role is not None and hand_over is not None and hand_over.is_under_way:
            machine.noticed(machine.role.master_epoch + 1, now_ms)
        if machine.wanted is not None:
            await self._change_role(machine.wanted)
        elif self._fails_for_too_long(now_ms) or self._has_failed_log():
            await self._resign()
        elif (question := machine.question(now_ms)) is not None:
            answer = await self._ask(question)
            sent_heartbeats = machine.sends_heartbeats
            try:
                machine.answered(question, answer, self._clock())
            except (MQError, OSError) as error:
                if str(error) != self._identity_error:
                    logger.error("the broker's identity is not kept, tried again error=%s", error)
                self._identity_error = str(error)
            if sent_heartbeats and not machine.sends_heartbeats:
                self._client.disconnect()
        else:
            await self._wait(machine.due_ms, now_ms)

    async def _wait(self, due_ms: int | None, now_ms: int) -> None:
        pause_s = STEP_S_MAX if due_ms is None else min(max(due_ms - now_ms, 1) / 1_000, STEP_S_MAX)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._news.wait()
        self._news.clear()

    async def _ask(self, question: Question) -> Answer | None:
        command = encode_question(question, self._names, address=self._address)
        heartbeat = self._heartbeat() if question.ask is Ask.ELECT else None
        try:
            return decode_answer(question, await self._client.ask(command, heartbeat=heartbeat))
        except UnavailableError as error:
            logger.debug("no answer question=%s error=%s", question.ask.name, error)
        except MQError as error:
            logger.warning("a controller's answer cannot be read question=%s error=%s", question.ask.name, error)
        return None

    async def _change_role(self, change: RoleChange) -> None:
        role, machine = change.role, self.machine
        self._failing = None
        self._end_ha_search()
        self._changes, self._is_changing = None, True
        try:
            if role.broker_id == MASTER_ID:
                await self._changer.become_master(role, change.members)
            else:
                await self._changer.become_slave(role)
        except StaleEpochError as error:
            logger.warning("not the master of an epoch that began before epoch=%d error=%s", role.master_epoch, error)
            machine.epoch_is_stale(change, self._clock())
            self._client.disconnect()
        except UnavailableError as error:
            logger.error("role not changed yet epoch=%d error=%s", role.master_epoch, error)
            self._took(change)
            if role.broker_id == MASTER_ID:
                self._failing, self._failing_since_ms = change, self._clock()
        else:
            self._took(change)
        finally:
            self._is_changing = False

    def _fails_for_too_long(self, now_ms: int) -> bool:
        if not self._changer.error:
            self._failing = None
        return self._failing is not None and now_ms - self._failing_since_ms >= self._settings().controller_silence_ms

    def _has_failed_log(self) -> bool:
        """Whether it is a master that takes no writes any more, and another broker may be elected."""
        role, sync_state_set = self.machine.role, self._replica.sync_state_set
        if role is None or role.broker_id != MASTER_ID or sync_state_set is None or not self._replica.is_failed:
            return False
        if len(sync_state_set.members) < 2 or not sync_state_set.has_all(None):
            return False
        logger.error("the master's log takes no writes any more epoch=%d", role.master_epoch)
        self._failing = RoleChange(role=role, members=sync_state_set.members)
        return True

    async def _resign(self) -> None:
        """End the tries to be the master of an epoch, and have another broker elected."""
        change, machine, self._failing = self._failing, self.machine, None
        assert change is not None
        waiting = RoleChange(role=machine.waiting_role(), members=frozenset())
        try:
            await self._changer.become_slave(waiting.role)
        except UnavailableError as error:
            logger.error("not a slave without a master yet error=%s", error)
        machine.role_taken(waiting)
        has_served = self._replica.served_epoch >= change.role.master_epoch
        machine.resign(change.role, heirs=frozenset() if has_served else change.heirs, now_ms=self._clock())
        if not machine.sends_heartbeats:
            self._client.disconnect()

    def _took(self, change: RoleChange) -> None:
        role = change.role
        self.machine.role_taken(change)
        self._has_role.set()
        logger.info(
            "role under the controllers broker_id=%d epoch=%d master=%s",
            role.broker_id,
            role.master_epoch,
            role.master_broker_id,
        )
        if role.master_address and not role.master_ha_address:
            self._ha_search = asyncio.get_running_loop().create_task(
                self._find_ha_address(role), name="search for the master's replication port"
            )

    # -- the master's replication port ---------------------------------------------------------------------------------

    def _end_ha_search(self) -> None:
        search, self._ha_search = self._ha_search, None
        if search is not None:
            search.cancel()

    async def _find_ha_address(self, role: ReplicaRole) -> None:
        """Ask the master until it has answered."""
        ha_address = ""
        while not ha_address:
            command = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader())
            try:
                answer = await self._brokers.request(role.master_address, command, timeout_ms=HA_ADDRESS_TIMEOUT_MS)
                # A broker that is not the master yet, or not any more, leaves it out.
                ha_address = answer.header(ExchangeHAInfoHeader).master_ha_address or ""
            except MQError as error:
                logger.debug("master does not name its replication port master=%s error=%s", role.master_address, error)
            if not ha_address:
                await asyncio.sleep(HA_ADDRESS_RETRY_S)
        self._brokers.disconnect(role.master_address)
        self._ha_search = None
        self.machine.ha_address_known(role, ha_address)
        self._news.set()

    # -- heartbeats, and the master's set ------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        if self.machine.sends_heartbeats:
            self._client.beat(self._heartbeat)
        await asyncio.sleep(self._settings().heartbeat_ms / 1_000)

    def _heartbeat(self) -> RemotingCommand:
        settings, replica = self._settings(), self._replica
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self._names.cluster,
            broker_addr=self._address,
            broker_name=self._names.broker_name,
            broker_id=self.machine.files.broker_id,
            epoch=replica.last_epoch,
            max_offset=replica.end_offset,
            confirm_offset=replica.confirm_offset,
            heartbeat_timeout_mills=settings.controller_silence_ms,
            election_priority=settings.election_priority,
        )
        return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)

    async def _change_set(self) -> None:
        changes = self._present_changes()
        question = None if changes is None else changes.question(self._clock())
        if changes is None or question is None:
            await asyncio.sleep(LOOK_MS / 1_000)
            return
        changes.answered(question, await self._ask(question), self._clock())
        if changes.is_replaced:
            changes.is_replaced = False
            role = self.machine.role
            self.noticed(0 if role is None else role.master_epoch + 1)

    def _present_changes(self) -> SetChanges | None:
        """The changes of the set that this broker is the master of now."""
        sync_state_set, role, news = self._replica.sync_state_set, self.machine.role, self.machine.current_set
        if sync_state_set is None or role is None or role.broker_id != MASTER_ID or self._is_changing:
            self._changes = None
        elif self._changes is None or self._changes.sync_state_set is not sync_state_set:
            self._changes = SetChanges(
                sync_state_set, master_epoch=role.master_epoch, random=self._random, now_ms=self._clock()
            )
        elif news is not None:
            self.machine.current_set = None
            self._changes.adopt(news)
        return self._changes


async def _repeat(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Repeat a step until cancelled."""
    while True:
        try:
            await step()
        except Exception:  # a bug of ours must not leave the broker without its controllers
            logger.exception("controllers not followed, a bug of ours")
            await asyncio.sleep(STEP_S_MAX)
