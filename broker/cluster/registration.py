"""Registration: registers this broker and its topics with every NameServer, and keeps the registration alive.

    at start, after 10 s, then every 30 s      all topics
    at each change of topics                   the topics that changed, many changes in one message; with
                                               `enableSingleTopicRegister` each topic in a request that leaves the
                                               broker's other topics alone, many at once as all topics
    when a connection was lost                 all topics, as soon as there is a new one: a NameServer forgets a broker
                                               whose connection closes

One task and one connection for each NameServer, independent of each other: an unreachable NameServer delays no other.
The list of NameServers is looked up repeatedly (name_server_watch.py). The broker registers with a new one at once.
A NameServer that leaves the list still gets registrations while clients may query it, then an unregistration.

Rules
  - One registration is under way at a time for a NameServer; changes that it did not acknowledge go with the next. A
    NameServer takes a changed topic over when the data version differs from the one it has, so a change that got lost
    must not be followed by a newer version without it.
  - The request is joined from pieces that the topic table keeps encoded: 5 000 topics cost about a millisecond.
  - A static topic goes with its mapping (tables/static_topic_table.py), in the same message.
  - The answer to a slave names its master, if the NameServer has one.
  - When the broker's own permission is less than reading and writing, every topic's permission is cut down to it.
Owner: the hot process's event loop.
Source: broker/BrokerController.java (registerBrokerAll, doRegisterBrokerAll, registerSingleTopicAll),
out/BrokerOuterAPI.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterator

import msgspec

from thermocline.broker.cluster.name_server_watch import NameServerWatch
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables import StaticTopicTable, TopicTable
from thermocline.remoting.bodies import PERM_READ, PERM_WRITE, KVTable, QueueData, TopicConfig, TopicRouteData
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import MQError, RequestTimeoutError, ResponseError, UnavailableError
from thermocline.remoting.headers.namesrv import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.tls import ClientTls

logger = logging.getLogger(__name__)

FIRST_PERIOD_MS = 10_000
RECONNECT_MS = 1_000
UNREGISTER_TIMEOUT_MS = 3_000
REMOVED_LINGER_MS = 120_000
"""Clients look up the list every 30 s at the latest, RocketMQ's with an address server every two minutes."""
SINGLE_TOPICS_MAX = 100
"""More changed topics than this are registered along with all others, in one request."""
SILENT_S = 30.0
"""A NameServer that is frozen takes connections, and answers nothing."""
ZONE_FIELD = "__ZONE_NAME"
"""Beside the header, as RocketMQ's hooks put it there (remoting/rpchook/DynamicalExtFieldRPCHook.java)."""


class RegistrationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one NameServer stands."""

    name_server: str
    is_registered: bool
    registered_count: int
    last_error: str


class Master(msgspec.Struct, frozen=True, kw_only=True):
    """The master of a broker with another id than 0, by a NameServer's answer."""

    address: str
    """host:port for clients and brokers."""
    ha_address: str | None
    """host:port of its log for replicas."""


class Registration:
    """Keeps one broker registered. `start` once; `unregister` takes the broker out, `close` only stops."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        config: Callable[[], BrokerConfig],
        advertised_address: str,
        ha_address: str,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
        state_version: int = 0,
    ) -> None:
        """`tls`: for the connections to NameServers, and to the brokers that they name; None: plain ones.
        `credentials`: of this broker, to sign its requests to NameServers and other brokers. `state_version`: of the
        topics; under a controller the epoch."""
        self.tls = tls
        self.credentials = credentials
        self._topics = topics
        self._static_topics = static_topics
        self._config = config
        self._state_version = state_version
        self.advertised_address = advertised_address
        self.ha_address = ha_address
        self.on_master: Callable[[str], None] = _ignore_master
        """Called with the master's address for slaves when a NameServer has answered a slave's registration."""
        self._watch = NameServerWatch(config=config, follow=self._follow)
        self._links: dict[str, _Link] = {}
        self._removed: dict[str, _Link] = {}
        self._removals: dict[str, asyncio.Task[None]] = {}
        topics.add_listener(self._topic_changed)
        static_topics.add_listener(self._mapping_changed)

    def start(self) -> None:
        """Begin to register; returns at once."""
        self._watch.start()

    async def wait_registered(self) -> None:
        """Return when every NameServer has acknowledged a registration."""
        await self._watch.found.wait()
        await asyncio.gather(*(link.registered.wait() for link in self._links.values()))

    def look_soon(self) -> None:
        """Look up now which NameServers there are."""
        self._watch.look_soon()

    def request_full(self) -> None:
        """Send all topics again, as a setting of all of them changed."""
        for link in self._all_links():
            link.request_full()

    async def unregister(self) -> None:
        """Tell the NameServers that reach us that this broker leaves, and stop. Idempotent."""
        await self._stop_tasks()
        await asyncio.gather(*(link.unregister() for link in self._all_links()))
        self._close_links()

    async def close(self) -> None:
        """Stop without a word; NameServers notice the closed connections. Idempotent."""
        await self._stop_tasks()
        self._close_links()

    async def call(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand | None:
        """Ask the first NameServer that is connected, and the next one where it does not answer; None when none is
        connected. Cancelling is safe. One that has not answered is asked after the others for SILENT_S.

        Raises:
            UnavailableError: None has answered.
        """
        now = asyncio.get_running_loop().time()
        failure: UnavailableError | None = None
        for link in sorted(self._all_links(), key=lambda link: link.silent_until > now):
            connection = link.connection
            if connection is None:
                continue
            try:
                answer = await connection.call(command.renumbered(), timeout_ms=timeout_ms)
            except UnavailableError as error:
                link.silent_until = asyncio.get_running_loop().time() + SILENT_S
                failure = error
            else:
                link.silent_until = 0.0
                return answer
        if failure is not None:
            raise failure
        return None

    def send_to_all(self, command: RemotingCommand) -> None:
        """Send a one-way request to each NameServer that this broker is registered with; others are left out."""
        for link in self._links.values():
            connection = link.connection
            if connection is not None and link.registered.is_set():
                with contextlib.suppress(UnavailableError):
                    connection.send_oneway(command)

    @property
    def master(self) -> Master | None:
        """This broker's master, by the first NameServer that knew one at the last registration; of those that have not
        answered since only where no other knew one."""
        links = sorted(self._links.values(), key=lambda link: not link.has_answered)
        return next((link.master for link in links if link.master is not None), None)

    def status(self) -> list[RegistrationStatus]:
        """How each NameServer of the list stands."""
        return [link.status() for link in self._links.values()]

    # -- for the links -------------------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now."""
        return self._config()

    def commands(self, changed: Collection[str] | None) -> Iterator[RemotingCommand]:
        """Requests, to be sent in this order, that register the topics that changed, or all."""
        if changed is None or not self.config.single_topic_register:
            yield self.command(changed)
        elif len(changed) > SINGLE_TOPICS_MAX:
            yield self.command(None)
        else:
            static = [name for name in changed if name in self._static_topics.details]
            if static:
                yield self.command(static)  # a registration with mappings removes no topic
            for name in changed:
                if name in self._topics and name not in static:
                    yield self._topic_command(name)

    def _topic_command(self, name: str) -> RemotingCommand:
        topic = self._topics.configs()[name]
        queue_data = QueueData(
            broker_name=self.config.broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=_allowed(topic, self.config.permission).perm,
            topic_sys_flag=topic.topic_sys_flag,
        )
        return RemotingCommand.request(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic=name),
            body=TopicRouteData(queue_datas=[queue_data]).encode(),
        )

    def command(self, changed: Collection[str] | None) -> RemotingCommand:
        """A registration of the topics that changed, or of all; those that were deleted meanwhile are left out."""
        config = self.config
        names = self._topics.configs() if changed is None else [name for name in changed if name in self._topics]
        if _is_whole(config.permission):
            entries = [self._topics.encoded(name) for name in names]
        else:
            entries = [_masked_entry(self._topics.configs()[name], config.permission) for name in names]
        static = self._static_topics
        mappings = [static.encoded_info(name) for name in static.details if changed is None or name in changed]
        data_version = self._topics.data_version
        if self._state_version:
            data_version = msgspec.structs.replace(data_version, state_version=self._state_version)
        version = data_version.encode()
        body = (
            b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%s,"mappingDataVersion":%s,'
            b'"topicConfigTable":{%s},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{%s}}}'
        ) % (version, version, b",".join(entries), b",".join(mappings))
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.advertised_address,
            cluster_name=config.cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=config.broker_id,
            heartbeat_timeout_millis=config.not_active_ms if config.slave_acting_master else None,
            enable_acting_master=config.slave_acting_master,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        zone = {ZONE_FIELD: config.zone_name} if config.zone_name else None
        return RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body=body, ext_fields=zone)

    def unregister_command(self) -> RemotingCommand:
        """A leave."""
        config = self.config
        return RemotingCommand.request(
            RequestCode.UNREGISTER_BROKER,
            UnregisterBrokerRequestHeader(
                broker_name=config.broker_name,
                broker_addr=self.advertised_address,
                cluster_name=config.cluster_name,
                broker_id=config.broker_id,
            ),
        )

    def report_master(self, master: Master | None) -> None:
        """Pass on where a slave's master has its port for slaves."""
        if self.config.is_slave and master is not None and master.ha_address is not None:
            self.on_master(master.ha_address)

    def take_order_topics(self, body: bytes) -> Awaitable[None]:
        """Mark the topics that the NameServer's order configuration names."""
        return self._topics.set_order(KVTable.decode(body).table)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if config is not None:
            for link in self._all_links():
                link.request(topic)

    def _mapping_changed(self, topic: str) -> None:
        if topic in self._topics:
            self._topics.touch()  # NameServers take a mapping over when the topics' version differs
            for link in self._all_links():
                link.request(topic)

    def _all_links(self) -> list[_Link]:
        return [*self._links.values(), *self._removed.values()]

    def _follow(self, addresses: tuple[str, ...]) -> None:
        """Register with these NameServers, and after a while not with any other."""
        for address in addresses:
            if address not in self._links:
                link = self._removed.pop(address, None)
                if link is None:
                    link = _Link(address, self)
                    link.start()
                else:
                    self._removals.pop(address).cancel()
                self._links[address] = link
        for address in [one for one in self._links if one not in addresses]:
            logger.info("name server leaves the list name_server=%s", address)
            link = self._removed[address] = self._links.pop(address)
            removal = self._remove(link, asyncio.get_running_loop().time() + REMOVED_LINGER_MS / 1000)
            self._removals[address] = asyncio.get_running_loop().create_task(removal, name=f"removal of {address}")

    async def _remove(self, link: _Link, due: float) -> None:
        """Leave a NameServer at a time of the loop; cancelled when it comes back to the list before."""
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        del self._removed[link.address], self._removals[link.address]
        await link.stop()
        await link.unregister()
        link.close()

    async def _stop_tasks(self) -> None:
        await self._watch.close()
        removals = list(self._removals.values())
        for removal in removals:
            removal.cancel()
        await asyncio.gather(*removals, return_exceptions=True)
        for link in self._all_links():
            await link.stop()

    def _close_links(self) -> None:
        for link in self._all_links():
            link.close()


class _Link:
    """One NameServer's connection, and what it has not acknowledged yet."""

    def __init__(self, address: str, registration: Registration) -> None:
        self.address = address
        self.registered = asyncio.Event()
        self._registration = registration
        self._connection: ClientConnection | None = None
        self._changed: dict[str, None] = {}
        self._is_full_due = True
        self._wake = asyncio.Event()
        self._registered_count = 0
        self._last_error = ""
        self.master: Master | None = None
        """As of the last registration."""
        self.has_answered = False
        """Whether the last registration was answered."""
        self.silent_until = 0.0
        """By the loop's clock: a request had no answer, and others are asked first."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to stay registered; nothing to do when it does already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"registration at {self.address}")

    async def stop(self) -> None:
        """Send no more registrations; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def connection(self) -> ClientConnection | None:
        """The connection while there is one."""
        return None if self._connection is None or self._connection.is_closed else self._connection

    def request(self, topic: str) -> None:
        self._changed[topic] = None
        self._wake.set()

    def request_full(self) -> None:
        self._is_full_due = True
        self._wake.set()

    def status(self) -> RegistrationStatus:
        return RegistrationStatus(
            name_server=self.address,
            is_registered=self.registered.is_set(),
            registered_count=self._registered_count,
            last_error=self._last_error,
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def unregister(self) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        try:
            await connection.request(self._registration.unregister_command(), timeout_ms=UNREGISTER_TIMEOUT_MS)
        except MQError as error:
            logger.warning("unregister failed name_server=%s error=%s", self.address, error)
        self.registered.clear()

    async def _run(self) -> None:
        """Stay registered until cancelled."""
        while True:
            try:
                await self._stay_registered()
            except Exception:
                # A bug must not take the broker out of routes for good.
                logger.exception("registration failed, a bug of ours name_server=%s", self.address)
                await asyncio.sleep(RECONNECT_MS / 1000)

    async def _stay_registered(self) -> None:
        """Begin with all topics."""
        self._is_full_due = True
        loop = asyncio.get_running_loop()
        period_ms = FIRST_PERIOD_MS
        due = loop.time()
        while True:
            if self._connection is None or self._connection.is_closed:
                self.registered.clear()
                self._is_full_due = True
                if not await self._connect():
                    await asyncio.sleep(RECONNECT_MS / 1000)
                    continue
            if loop.time() >= due:
                self._is_full_due = True
            if self._is_full_due or self._changed:
                was_full = self._is_full_due
                if await self._register():
                    if was_full:
                        due = loop.time() + min(period_ms, self._registration.config.register_period_ms) / 1000
                        period_ms = self._registration.config.register_period_ms
                else:
                    await asyncio.sleep(RECONNECT_MS / 1000)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            self._wake.clear()

    async def _connect(self) -> bool:
        try:
            registration = self._registration
            self._connection = await ClientConnection.open(
                self.address,
                on_closed=self._connection_closed,
                tls=registration.tls,
                credentials=registration.credentials,
            )
        except UnavailableError as error:
            self._failed(error)
            return False
        return True

    def _connection_closed(self, connection: Connection) -> None:
        if connection is self._connection:
            self.registered.clear()
            self._wake.set()

    async def _register(self) -> bool:
        """Send what is not acknowledged yet; True when it was acknowledged."""
        connection = self._connection
        assert connection is not None
        changed, self._changed = self._changed, {}
        is_full, self._is_full_due = self._is_full_due, False
        asked_at_s = asyncio.get_running_loop().time()
        try:
            for command in self._registration.commands(None if is_full else changed):
                answer = await connection.call(command, timeout_ms=self._registration.config.register_timeout_ms)
                if answer.code != ResponseCode.SUCCESS:
                    raise ResponseError(answer.remark or "", code=answer.code)
                if command.code == RequestCode.REGISTER_BROKER:
                    self.master = _master_in(answer)
                    self._registration.report_master(self.master)
                if answer.body:
                    await self._registration.take_order_topics(bytes(answer.body))
        except MQError as error:
            self.has_answered = False
            self._changed = {**changed, **self._changed}
            self._is_full_due = True
            self._failed(error)
            if isinstance(error, RequestTimeoutError) and connection.received_at < asked_at_s:
                connection.abort()  # of a gateway that has forgotten it, or a host that was started anew; as RocketMQ
            return False
        self._registered_count += 1
        self.has_answered = True
        if not self.registered.is_set():
            logger.info("registered name_server=%s address=%s", self.address, self._registration.advertised_address)
        self._last_error = ""
        self.registered.set()
        return True

    def _failed(self, error: MQError) -> None:
        """One line when trouble begins or changes, not one every second."""
        if str(error) != self._last_error:
            logger.warning("not registered name_server=%s error=%s", self.address, error)
        self._last_error = str(error)


def _ignore_master(address: str) -> None:
    """What a broker without a master does with one."""


def _master_in(answer: RemotingCommand) -> Master | None:
    header = answer.header(RegisterBrokerResponseHeader)
    if not header.master_addr:
        return None
    return Master(address=header.master_addr, ha_address=header.ha_server_addr or None)


def _is_whole(permission: int) -> bool:
    """Whether the broker allows both reading and writing."""
    return permission & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE


def _allowed(config: TopicConfig, permission: int) -> TopicConfig:
    """The topic with what the broker's own permission leaves of it."""
    return config if _is_whole(permission) else msgspec.structs.replace(config, perm=config.perm & permission)


def _masked_entry(config: TopicConfig, permission: int) -> bytes:
    return msgspec.json.encode(config.topic_name) + b":" + _allowed(config, permission).encode()
