"""Pre-online: before a master serves, it takes back how far its slaves have come in its place.

    1. NameServers tell which slaves are alive.
    2. Each slave, the least id first: EXCHANGE_BROKER_HA_INFO says where the master's log is, the slave connects to it
       and is accepted; from then on it delivers nothing.
    3. Its consumer offsets, delay progress and timer checkpoint are fetched.
    4. What is further than here is written to this broker's state files, before they are loaded; how far timed
       messages went is handed on to the timers' recovery.

Where both have a position, the greater one counts: neither broker goes on before what the other has done. RocketMQ
compares versions of whole tables, which rise with every 500th commit. A slave that began empty may lack older messages:
then a position of this broker counts that is before the slave's log, as the slave went on behind what it lacks.
The broker is not at NameServers and serves nothing before this is done; while a slave that is alive does not answer, it
tries again every second. A slave whose log ends behind this broker's is refused by the log's port: then the operator
has to choose (docs/replicas.md).
Owner: the hot process's event loop, before its parts are made.
Source: broker/BrokerPreOnlineService.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.acting.member_requests import AT_REST_FIELD, HISTORY_FIELD, LOG_START_FIELD
from thermocline.broker.due import delay_service
from thermocline.broker.replicas import MasterMetadata
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.state_files import load_file
from thermocline.broker.tables import ConsumerOffsets, consumer_offsets
from thermocline.remoting.bodies import GetBrokerMemberGroupResponseBody, KVTable
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, MQError, ResponseError, UnavailableError
from thermocline.remoting.handles import revive_topic
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.headers.namesrv import GetBrokerMemberGroupRequestHeader
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC
from thermocline.store.files import Disk, replace_file
from thermocline.timers.taken_back import TakenBackTimers

logger = logging.getLogger(__name__)

MASTER_ID = 0
AGAIN_S = 1.0
TIMEOUT_MS = 3_000
CONNECTED_S_MAX = 10.0
STEP_S = 0.05


class TakenBack(msgspec.Struct, kw_only=True):
    """What was found, in all slaves together."""

    slaves_count: int = 0
    offsets_count: int = 0
    """Consumer offsets that were further at a slave."""
    levels_count: int = 0
    """Delay levels of which this is true."""
    timers: TakenBackTimers | None = None
    """The furthest; None: no slave has timers."""


class PreOnline:
    """One return of a master. `run` once."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        client: RemotingClient,
        *,
        disk: Disk,
        folder: str,
        address: str,
        ha_address: str,
        log_end: Callable[[], PhysicalOffset],
        place_of: Callable[[str, int, QueueOffset], PhysicalOffset | None],
        connected_count: Callable[[], int],
        clock: Callable[[], int],
    ) -> None:
        """`client`: signs and speaks TLS as this broker does; closed by its owner. `folder`: of the state files.
        `address`, `ha_address`: host:port for clients, and of the log. `place_of(topic, queue id, offset)`: where the
        first message from that offset on is in the log, None without one. `connected_count`: slaves whose logs were
        accepted by the port, whatever address they come from. `clock`: wall clock in ms."""
        self._config = config
        self._client = client
        self._disk = disk
        self._folder = folder
        self._address = address
        self._ha_address = ha_address
        self._log_end = log_end
        self._place_of = place_of
        self._connected_count = connected_count
        self._clock = clock
        self._last_error = ""
        self._taken = TakenBack()

    async def run(self) -> TakenBack:
        """Return when every slave that is alive was asked; what was taken back is durable.

        Raises:
            CorruptDataError: A state file of this broker cannot be read.
            OSError, DiskFullError: The disk failed.
        """
        done: set[str] = set()
        while True:
            try:
                for _, slave in sorted((await self._slaves()).items()):
                    if slave not in done:
                        self._taken.slaves_count += await self._take_from(slave)
                        done.add(slave)
            except CorruptDataError:
                raise
            except MQError as error:
                if str(error) != self._last_error:
                    logger.warning("not online yet, a slave has to be asked first error=%s", error)
                self._last_error = str(error)
                await asyncio.sleep(AGAIN_S)
                continue
            taken = self._taken
            logger.info(
                "goes online slaves=%d offsets_taken_back=%d delay_levels_taken_back=%d",
                taken.slaves_count,
                taken.offsets_count,
                taken.levels_count,
            )
            return taken

    async def _slaves(self) -> dict[int, str]:
        """Id -> address, by all NameServers that answer.

        Raises:
            UnavailableError: There are some, and none answers.
        """
        source, config = self._config().name_server_source, self._config()
        if source is None:
            return {}
        command = RemotingCommand.request(
            RequestCode.GET_BROKER_MEMBER_GROUP,
            GetBrokerMemberGroupRequestHeader(cluster_name=config.cluster_name, broker_name=config.broker_name),
        )
        members: dict[int, str] = {}
        errors: list[MQError] = []
        addresses = await source.fetch()
        for name_server in addresses:
            try:
                answer = await self._client.request(name_server, command.renumbered(), timeout_ms=TIMEOUT_MS)
                members |= GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group.broker_addrs
            except MQError as error:
                errors.append(error)
        if addresses and len(errors) == len(addresses):
            raise UnavailableError("no NameServer tells which slaves there are", reason=str(errors[0]))
        return {id_: address for id_, address in members.items() if id_ != MASTER_ID and address != self._address}

    async def _take_from(self, slave: str) -> bool:
        """Take back what a slave has done; False if it never does anything in a master's place."""
        header = ExchangeHAInfoHeader(
            master_ha_address=self._ha_address, master_flush_offset=self._log_end(), master_address=self._address
        )
        command = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        answer = await self._client.call(slave, command, timeout_ms=TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            logger.warning("a slave without enableSlaveActingMaster is not asked slave=%s", slave)
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.remark or "", code=answer.code, slave=slave)
        fields = answer.ext_fields or {}
        await self._wait_connected(slave)
        log_start = await self._log_start(slave, fields)
        metadata = MasterMetadata(self._client, slave)
        offsets, delays = await metadata.consumer_offsets(), await metadata.delay_offsets()
        timers = await _timers_of(metadata, is_at_rest=fields.get(AT_REST_FIELD) == "true", log_start=log_start)
        history_start = LOG_START if fields.get(HISTORY_FIELD) == "true" else log_start
        is_ours = LOG_START_FIELD in fields
        self._taken.offsets_count += self._merge_offsets(
            offsets, history_start=history_start, log_start=log_start if is_ours else None
        )
        self._taken.levels_count += self._merge_delays(delays, log_start)
        present = self._taken.timers
        if timers is not None and (present is None or timers.read_time_ms > present.read_time_ms):
            self._taken.timers = timers
        return True

    async def _wait_connected(self, slave: str) -> None:
        try:
            async with asyncio.timeout(CONNECTED_S_MAX):
                while self._connected_count() <= self._taken.slaves_count:  # noqa: ASYNC110 - the port tells of no connection
                    await asyncio.sleep(STEP_S)
        except TimeoutError:
            raise UnavailableError(
                "the slave does not connect to the log's port, or its log was refused", slave=slave
            ) from None

    async def _log_start(self, slave: str, fields: Mapping[str, str]) -> PhysicalOffset:
        """Where the slave's log begins: as it says itself, or its runtime information."""
        text = fields.get(LOG_START_FIELD)
        if text is None:
            command = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await self._client.request(slave, command, timeout_ms=TIMEOUT_MS)
            text = KVTable.decode(answer.body).table.get("commitLogMinOffset", "")
        if not text.isdecimal():
            raise InvalidRequestError("the slave does not say where its log begins", slave=slave)
        return PhysicalOffset(int(text))

    def _had(self, log_start: PhysicalOffset) -> Callable[[str, int, QueueOffset], bool]:
        """Whether a log that begins there has the messages of a queue from an offset on."""

        def had(topic: str, queue_id: int, offset: QueueOffset) -> bool:
            place = self._place_of(topic, queue_id, offset)
            return place is None or place >= log_start

        return had

    def _merge_offsets(self, data: bytes, *, history_start: PhysicalOffset, log_start: PhysicalOffset | None) -> int:
        """Write consumer offsets that are further at the slave; how many there are. What has waited at the master is in
        no bucket: progress in it counts from `log_start`, others from `history_start`. `log_start` None: RocketMQ's
        slave has passed over what it could not send, so that its progress does not count."""
        path = f"{self._folder}/{consumer_offsets.FILE_NAME}"
        own, theirs = ConsumerOffsets(clock=self._clock), ConsumerOffsets(clock=self._clock)
        own.load(load_file(self._disk, path))
        try:
            theirs.load(data)
        except CorruptDataError as error:
            raise InvalidRequestError("the slave's consumer offsets cannot be read", reason=str(error)) from error
        had = self._had(history_start)
        has_waiting = _had_nothing if log_start is None else self._had(log_start)
        waiting_topics = {
            revive_topic(self._config().cluster_name),
            TRANSACTION_HALF_TOPIC,
            TRANSACTION_OP_HALF_TOPIC,
        }
        count = own.take_further(
            theirs, had=lambda topic, *place: (has_waiting if topic in waiting_topics else had)(topic, *place)
        )
        if count:
            replace_file(self._disk, path, own.encode(pop_log_offset=own.pop_log_offset), keep_backup=True)
        return count

    def _merge_delays(self, data: bytes, log_start: PhysicalOffset) -> int:
        """Write progress of delay levels that is further at the slave; in how many levels it is."""
        path = f"{self._folder}/{delay_service.FILE_NAME}"
        merged = delay_service.furthest(load_file(self._disk, path), data, had=self._had(log_start), clock=self._clock)
        if merged is None:
            return 0
        replace_file(self._disk, path, merged.text, keep_backup=True)
        return merged.levels_count


def _had_nothing(topic: str, queue_id: int, offset: QueueOffset) -> bool:
    return False


async def _timers_of(
    metadata: MasterMetadata, *, is_at_rest: bool, log_start: PhysicalOffset
) -> TakenBackTimers | None:
    """None: that broker has no timers, or never knew of any."""
    try:
        data = await metadata.timer_checkpoint()
    except ResponseError:
        return None  # they are switched off there
    try:
        return TakenBackTimers.of_checkpoint(data, is_at_rest=is_at_rest, log_start=log_start)
    except ValueError as error:
        raise InvalidRequestError("the timer checkpoint cannot be read", reason=str(error)) from error
