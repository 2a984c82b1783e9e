"""Cold data flow control: the bytes of history that groups read, and their limits.

    2001 UPDATE_COLD_DATA_FLOW_CTR_CONFIG    2002 REMOVE_COLD_DATA_FLOW_CTR_CONFIG    2003 GET_COLD_DATA_FLOW_CTR_INFO
    2004 SET_COMMITLOG_READ_MODE

Groups and thresholds travel as properties text (2001), or as the group's bare name (2002).
2004 tells the kernel how the log's files are read. RocketMQ does it by advice to its mappings; here the log is read by
whole ranges, and ahead of its readers, so either mode is accepted and nothing depends on it.
Source: broker/processor/AdminBrokerProcessor.java, broker/coldctr/ColdDataCgCtrService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec

from thermocline.broker.pulls import ColdReadQuota
from thermocline.broker.settings import CurrentConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidParameterError, MQError
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import parse_config_text

logger = logging.getLogger(__name__)

_LONG = re.compile(r"[+-]?[0-9]{1,19}")

READ_MODE_FIELD = "READ_AHEAD_MODE"
GROUPS_LOGGED_MAX = 20
READ_MODES = (0, 1)
"""The kernel's MADV_NORMAL and MADV_RANDOM."""


class ColdFlowProcessor:
    """Serves operators' requests about cold reads."""

    def __init__(self, *, settings: CurrentConfig, cold_quota: ColdReadQuota) -> None:
        self._settings = settings
        self._quota = cold_quota

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.update,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.remove,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.get,
            RequestCode.SET_COMMITLOG_READ_MODE: self.set_read_mode,
        }

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """2001: give groups thresholds; a line that is no number is passed over, as RocketMQ does."""
        texts = parse_config_text(bytes(command.body).decode("utf-8", "replace"))
        numbers = {group: int(text) for group, text in texts.items() if _LONG.fullmatch(text.strip())}
        thresholds = {group: number for group, number in numbers.items() if -LONG_MAX <= number <= LONG_MAX}
        self._quota.set_thresholds(thresholds)
        logger.info(
            "cold read thresholds groups=%s count=%d passed_over=%d by=%s",
            ",".join(sorted(thresholds)[:GROUPS_LOGGED_MAX]),
            len(thresholds),
            len(texts) - len(thresholds),
            connection.remote_address,
        )
        return RemotingCommand.response(command)

    def remove(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """2002: take a group's threshold away."""
        group = bytes(command.body).decode("utf-8", "replace")
        self._quota.remove_threshold(group)
        logger.info("cold read threshold removed group=%s by=%s", group, connection.remote_address)
        return RemotingCommand.response(command)

    def get(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """2003: bytes read by each group, and thresholds."""
        config, quota = self._settings.broker, self._quota
        body = {
            "runtimeTable": {
                group: {
                    "coldAcc": reads.window_bytes,
                    "createTimeMills": reads.first_ms,
                    "lastColdReadTimeMills": reads.last_ms,
                }
                for group, reads in quota.groups().items()
            },
            "configTable": dict(quota.thresholds),
            "cgColdReadThreshold": config.cold_read_threshold,
            "globalColdReadThreshold": config.cold_read_threshold_global,
            "globalAcc": quota.all_bytes,
        }
        return RemotingCommand.response(command, body=msgspec.json.encode(body))

    def set_read_mode(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """2004: how the log's files are read."""
        if command.ext_fields is None:
            raise MQError("set commitlog readahead mode param error")
        try:
            mode = int(command.ext_fields.get(READ_MODE_FIELD, ""))
        except ValueError as error:
            raise MQError("set commitlog readahead mode failed") from error
        if mode not in READ_MODES:
            raise InvalidParameterError("set commitlog readahead mode param value error")
        logger.info("log read mode requested mode=%d by=%s", mode, connection.remote_address)
        return RemotingCommand.response(command, remark=f"set commitlog readahead mode success, mode: {mode}")
