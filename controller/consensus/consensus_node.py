"""Consensus node: the replicated log of one controller, with its clock and its connections.

    node = ConsensusNode(...)         start, close
    node.is_serving                   this node leads, and its tables hold all that was committed before it did
    await node.propose(command)       committed by a majority, durable, and applied here
    node.receive(host, body)          what a peer sent by CONTROLLER_CONSENSUS

Peers are those of `controllerDLegerPeers` and no others: a message has to come from an address of the node that it says
it is from, and with access control it is signed as well. Each node opens one connection to each peer, from its own
address of that list, if it is this machine's. On it, it sends one-way requests; what a peer does not take is dropped,
which Raft allows. A connection is dropped when the peer's machine acknowledges nothing for UNACKNOWLEDGED_MS: a peer
that comes back after a power cut would else hear nothing for a while, and call for elections.

A leader serves once an empty proposal of its own term is applied. A pause of the process longer than PAUSE_MAX_S (a
frozen machine) is noticed before the next answer, since another node may lead by then.
A failure of the disk ends a node's part for good: it takes no part any more, and says so in the log.
Owner: the controller's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Mapping

from thermocline.controller.consensus.journal import Journal
from thermocline.controller.consensus.peer_messages import Envelope, Message, RisingOrder
from thermocline.controller.consensus.peers import Peers
from thermocline.controller.consensus.replicated_log import TICK_MS, ReplicatedLog
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import (
    MQError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseError,
    UnavailableError,
)
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.socket_address import parse_address
from thermocline.remoting.tls import ClientTls
from thermocline.store.files import Disk

logger = logging.getLogger(__name__)

PROPOSAL_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_MS = 1_000
RECONNECT_S = 0.5
PAUSE_MAX_S = 0.5
MISSED_S = 2.0
RESOLVE_S = 30.0
RESOLVE_TIMEOUT_S = 3.0
UNACKNOWLEDGED_MS = 2_000
BARRIER = b""


class NotLeaderError(ResponseError):
    """Another controller leads, or none; CONTROLLER_GET_METADATA_INFO says which."""

    def __init__(self, message: str = "The controller is not in leader state") -> None:
        super().__init__(message, code=ResponseCode.CONTROLLER_NOT_LEADER, remark=message)


class ConsensusNode:
    """See the module."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        peers: Peers,
        *,
        group: str,
        apply: Callable[[bytes], object],
        encode_tables: Callable[[], bytes],
        restore_tables: Callable[[bytes], None],
        on_leading: Callable[[bool], None],
        on_paused: Callable[[], None],
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_leading`: called with True when this node begins to serve, with False when it stops. `on_paused`: called
        when the process stood still for more than MISSED_S. `clock`: seconds."""
        self._disk, self._folder, self._peers, self._group = disk, folder, peers, group
        self._apply, self._encode_tables, self._restore_tables = apply, encode_tables, restore_tables
        self._on_leading, self._on_paused = on_leading, on_paused
        self._tls, self._credentials = tls, credentials
        self._clock = clock
        self._log: ReplicatedLog | None = None
        self._starts = 0
        self._sequence = 0
        self._order = RisingOrder()
        self._links: dict[str, ClientConnection] = {}
        self._hosts: Mapping[str, frozenset[str]] = {}
        self._own_hosts: tuple[str, ...] = ()
        self._strangers: set[str] = set()
        """Peers whose messages come from elsewhere, as a warning has said since the last look-up."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._barrier_term = 0
        self._serving_term = 0
        self._ticked_s = clock()
        self._failure: BaseException | None = None

    # -- what the controller asks --------------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether this node leads and may answer from its tables."""
        if self._log is None or self._failure is not None:
            return False
        if self._clock() - self._ticked_s > PAUSE_MAX_S:
            self._tick()
        return self._failure is None and self._log.is_leader and self._serving_term == self._log.term

    @property
    def leader(self) -> str | None:
        """The id of the node that this one follows, or its own; None while it follows none."""
        return None if self._log is None or self._failure is not None else self._log.leader

    @property
    def term(self) -> int:
        """The term that this node is in; 0 before the start."""
        return 0 if self._log is None else self._log.term

    @property
    def entry_count(self) -> int:
        """Entries in the log, which a snapshot shortens."""
        return 0 if self._log is None else self._log.entry_count

    @property
    def applied_index(self) -> int:
        """The last entry that is in the tables."""
        return 0 if self._log is None else self._log.applied_index

    @property
    def failure(self) -> BaseException | None:
        """Why this node takes no part any more."""
        return self._failure

    async def propose(self, command: bytes, *, timeout_s: float = PROPOSAL_TIMEOUT_S) -> object:
        """Have a command committed and applied; what `apply` gave. After an error it may still be applied later.

        Raises:
            NotLeaderError: This node does not lead, or does not lead any more.
            RequestTimeoutError: No majority has it yet.
        """
        if not self.is_serving:
            raise NotLeaderError
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._propose(command)
        except TimeoutError:
            raise RequestTimeoutError("no majority of the controllers answers in time") from None
        if result is None:
            raise NotLeaderError
        return result

    def receive(self, host: str, body: bytes | memoryview) -> None:
        """Take a message of the peer at this address.

        Raises:
            InvalidRequestError: It cannot be read.
            PermissionDeniedError: It comes from no peer, or from another address than the peer's.
        """
        envelope = Envelope.decode(body)
        if envelope.group != self._group or envelope.sender not in self._peers.others:
            raise PermissionDeniedError("not a controller of this group", sender=envelope.sender)
        if host not in self._hosts.get(envelope.sender, ()):
            self._warn_of_stranger(envelope.sender, host)
            raise PermissionDeniedError("not an address of this controller", sender=envelope.sender, address=host)
        if self._log is None or self._failure is not None or not self._order.is_newer(envelope):
            return
        log = self._log
        self._guarded(lambda: log.receive(envelope.sender, envelope.message))
        self._tick()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the folder and take part.

        Raises:
            CorruptDataError: A file cannot be what this node wrote.
            SettingError: The folder is another node's, or the group had other nodes.
            UnavailableError: Another process has the folder open.
        """
        journal = Journal(
            self._disk,
            self._folder,
            group=self._group,
            node=self._peers.node,
            nodes=self._peers.addresses,
            start_floor=time.time_ns() // 1_000_000,
        )
        self._starts = journal.starts
        try:
            self._log = ReplicatedLog(
                journal,
                node=self._peers.node,
                peers=self._peers.others,
                apply=self._apply,
                encode_tables=self._encode_tables,
                restore_tables=self._restore_tables,
                send=self._send,
            )
        except BaseException:
            journal._destroy()
            raise
        if self._peers.others:
            await self._resolve()
        self._ticked_s = self._clock()
        self._spawn(self._tick_on(), "clock of the consensus")
        if self._peers.others:
            self._spawn(self._resolve_on(), "addresses of controllers")
        for name, address in self._peers.others.items():
            self._spawn(self._link_on(name, address), f"connection to controller {name}")

    async def close(self) -> None:
        """Take no part any more, and close the files. Idempotent."""
        for task in self._tasks:
            task.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        self._tasks.add(asyncio.create_task(work, name=name))

    # -- the clock -----------------------------------------------------------------------------------------------------

    async def _tick_on(self) -> None:
        while self._failure is None:
            self._tick()
            await asyncio.sleep(TICK_MS / 1000)

    def _tick(self) -> None:
        assert self._log is not None
        if self._failure is not None:
            return
        now_s = self._clock()
        if now_s - self._ticked_s > MISSED_S:
            self._on_paused()
        self._ticked_s = now_s
        self._guarded(self._log.tick)
        self._follow_term()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (OSError, MQError, AssertionError) as error:
            self._failure = error
            logger.exception("the consensus of controllers ends here: node=%s", self._peers.node)
            self._stop_serving()

    def _follow_term(self) -> None:
        """Begin to serve when an empty proposal of this term is applied; stop when the term is over."""
        log = self._log
        assert log is not None
        if self._serving_term and (not log.is_leader or log.term != self._serving_term):
            self._stop_serving()
        if log.is_leader and self._barrier_term != log.term and self._failure is None:
            term = self._barrier_term = log.term
            logger.info("this controller leads node=%s term=%d", self._peers.node, term)
            log.propose(BARRIER, lambda result: self._barrier_done(term, result))
            self._guarded(log.tick)

    def _barrier_done(self, term: int, result: object | None) -> None:
        assert self._log is not None
        if result is None or not self._log.is_leader or self._log.term != term:
            self._barrier_term = 0  # if this node still leads, the next tick proposes again
            return
        self._serving_term = term
        self._on_leading(True)

    def _stop_serving(self) -> None:
        if self._serving_term:
            self._serving_term = 0
            self._on_leading(False)

    async def _propose(self, command: bytes) -> object | None:
        assert self._log is not None
        done: asyncio.Future[object | None] = asyncio.get_running_loop().create_future()

        def settle(result: object | None) -> None:
            if not done.done():
                done.set_result(result)

        self._log.propose(command, settle)
        self._tick()
        return await done

    # -- connections ---------------------------------------------------------------------------------------------------

    def _send(self, peer: str, message: Message) -> None:
        self._sequence += 1
        link = self._links.get(peer)
        if link is None:
            return
        envelope = Envelope(
            group=self._group,
            sender=self._peers.node,
            starts=self._starts,
            sequence=self._sequence,
            message=message,
        )
        command = RemotingCommand.request(PrivateRequestCode.CONTROLLER_CONSENSUS, body=envelope.encode(), oneway=True)
        with contextlib.suppress(UnavailableError):  # the peer does not take it: Raft sends it again
            link.send_oneway(command)

    async def _link_on(self, name: str, address: str) -> None:
        has_complained = False
        while True:
            try:
                link = await ClientConnection.open(
                    address,
                    connect_timeout_ms=CONNECT_TIMEOUT_MS,
                    tls=self._tls,
                    credentials=self._credentials,
                    local_hosts=self._own_hosts,
                )
                link.drop_unacknowledged(after_ms=UNACKNOWLEDGED_MS)
            except UnavailableError as error:
                level = logging.DEBUG if has_complained else logging.WARNING
                logger.log(level, "no connection to controller %s: %s", name, error)
                has_complained = True
                await asyncio.sleep(RECONNECT_S)
                continue
            has_complained = False
            self._links[name] = link
            assert self._log is not None
            self._log.connected(name)
            logger.info("connected to controller node=%s address=%s", name, address)
            try:
                await link.wait_closed()
            finally:
                self._links.pop(name, None)
                link.close()
                self._log.disconnected(name)
            await asyncio.sleep(RECONNECT_S)

    async def _resolve_on(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_S)
            await self._resolve()

    async def _resolve(self) -> None:
        """Look up the addresses of all nodes; those of one that has no address now stay as they were."""
        found = await asyncio.gather(*(self._look_up(name, text) for name, text in self._peers.addresses.items()))
        self._hosts = {**self._hosts, **{name: hosts for name, hosts in found if hosts}}
        self._own_hosts = tuple(host for host in self._hosts.get(self._peers.node, ()) if _is_here(host))
        self._strangers.clear()

    async def _look_up(self, name: str, address: str) -> tuple[str, frozenset[str]]:
        host, _ = parse_address(address)
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            logger.warning("no address of controller %s is known host=%s: %r", name, host, error)
            return name, frozenset()
        return name, frozenset(str(entry[4][0]) for entry in found)

    def _warn_of_stranger(self, sender: str, host: str) -> None:
        """Once a look-up for each peer: without its messages there may be no leader, and nothing else says why."""
        if sender not in self._strangers:
            self._strangers.add(sender)
            logger.warning(
                "messages of controller %s are refused: they come from %s, its entry in controllerDLegerPeers is %s",
                sender,
                host,
                ",".join(sorted(self._hosts.get(sender, ()))) or "no address",
            )


def _is_here(host: str) -> bool:
    """Whether it is an address of this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
