"""Broker administration: settings, runtime information, cleaning up.

    25 UPDATE_BROKER_CONFIG       45 GET_ALL_DELAY_OFFSET          316 CLEAN_UNUSED_TOPIC
    26 GET_BROKER_CONFIG          60 GET_TIMER_CHECK_POINT         329 DELETE_EXPIRED_COMMITLOG
    28 GET_BROKER_RUNTIME_INFO    61 GET_TIMER_METRICS             354 CHECK_ROCKSDB_CQ_WRITE_PROGRESS
                                 306 CLEAN_EXPIRED_CONSUMEQUEUE    355 EXPORT_ROCKSDB_CONFIG_TO_JSON
                                                                200056 POP_ROLLBACK

306 starts a round of local retention, which deletes what may go by its own rules and nothing else. 329 deletes log
files that are past their age whatever hour of the day it is, as RocketMQ does, once the cold tier has them.
316 forgets queues whose topic is not set up any more. 354, 355 and 200056 are about a store that this broker never has:
they are answered as a broker of RocketMQ with its default store answers them.
Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

from thermocline.broker.cluster import Registration
from thermocline.broker.due import DelayService
from thermocline.broker.processors.runtime_info import RuntimeInfo
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import MessageFilters, TopicTable
from thermocline.remoting.bodies import KVTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.broker import GetBrokerConfigResponseHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import parse_config_text
from thermocline.store.message_store import MessageStore
from thermocline.timers.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

PROPERTY_FILTER = "enablePropertyFilter"
BROKER_PERMISSION = "brokerPermission"
DEFAULT_REMARK = "not set any response code"
CHECK_IN_PROGRESS = 2
"""RocketMQ's answer, sent at once and independent of the outcome."""


class AdminProcessor:
    """Serves what operators ask of a broker as a whole."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        filters: MessageFilters,
        delays: DelayService,
        timers: TimerMessageStore | None,
        persister: ConfigPersister,
        registration: Registration,
        runtime_info: RuntimeInfo,
        run_retention: Callable[[], Awaitable[None]],
        delete_expired: Callable[[], Awaitable[None]],
    ) -> None:
        """`run_retention`: one round of local retention. `delete_expired`: log files, at any hour."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self._filters = filters
        self._delays = delays
        self._timers = timers
        self._persister = persister
        self._registration = registration
        self._runtime_info = runtime_info
        self._run_retention = run_retention
        self._delete_expired = delete_expired

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_log,
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: self.check_rocksdb,
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: self.export_rocksdb,
            RequestCode.POP_ROLLBACK: self.export_pop_records,
        }

    async def update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """25: change settings; durable before the answer. Unknown names are passed over."""
        properties = parse_config_text(bytes(command.body).decode("utf-8", "replace"))
        if properties:
            logger.info("settings to change names=%s by=%s", ",".join(sorted(properties)), connection.remote_address)
            permission_before = self._settings.broker.permission
            if properties.get(PROPERTY_FILTER, "").strip().lower() == "true":
                await self._filters.prepare()
            await self._settings.update(properties, self._persister)
            if self._settings.broker.permission != permission_before:
                self._topics.touch()
                self._registration.request_full()
        return RemotingCommand.response(command)

    def get_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """26: all settings as properties text."""
        settings = self._settings
        header = GetBrokerConfigResponseHeader(version=settings.version.text().decode())
        return RemotingCommand.response(command, header=header, body=settings.text().encode())

    def get_runtime_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """28: runtime information."""
        return RemotingCommand.response(command, body=KVTable(table=self._runtime_info.table()).encode())

    def get_delay_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """45: progress of the delay levels, as the file has it."""
        return RemotingCommand.response(command, body=self._delays.encode())

    def get_timer_checkpoint(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """60: how far the timers are durable, in the form of RocketMQ's file."""
        timers = self._timers
        if timers is None:
            raise MQError("The checkpoint is null")
        return RemotingCommand.response(command, body=timers.checkpoint.encode_shared())

    def get_timer_metrics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """61: how many messages of each topic wait for their time."""
        timers = self._timers
        if timers is None:
            raise MQError("The timer message store is null")
        return RemotingCommand.response(command, body=timers.metrics.encode())

    async def clean_expired(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """306: delete now what local retention would delete by itself later."""
        logger.info("retention requested by=%s", connection.remote_address)
        await self._run_retention()
        return RemotingCommand.response(command)

    async def delete_expired_log(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """329: delete the log files that are past their age, without waiting for the hour of `deleteWhen`."""
        logger.info("deletion of expired log files requested by=%s", connection.remote_address)
        await self._delete_expired()
        return RemotingCommand.response(command)

    async def clean_unused_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """316: forget queues whose topic is not set up any more; durable before the answer."""
        topics = self._topics
        unused = [
            topic for topic in self._store.queues.topics if topic not in topics and not topics.is_system_topic(topic)
        ]
        for topic in unused:
            await topics.delete(topic)
        logger.info("unused topics forgotten count=%d by=%s", len(unused), connection.remote_address)
        return RemotingCommand.response(command)

    def check_rocksdb(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """354: there are no queues in RocksDB to compare with."""
        return RemotingCommand.response(command, body=b'{"checkStatus":%d}' % CHECK_IN_PROGRESS)

    def export_rocksdb(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """355: nothing is configured in RocksDB."""
        return RemotingCommand.response(command, remark="export done.")

    def export_pop_records(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """200056: no records of POP are in RocksDB."""
        return RemotingCommand.response(command, remark=DEFAULT_REMARK)
