"""Message request modes: which groups pop which topics, as operators have set it; all others pull.

File: config/messageRequestMode.json, Apache RocketMQ's:
    {"messageRequestModeMap":{topic:{group:{"consumerGroup":..,"mode":"POP","popShareQueueNum":0,"topic":..}}}}
It is durable before a change is answered.
Owner: the hot process's event loop.
Source: broker/loadbalance/MessageRequestModeManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.broker.state_files import ConfigPersister
from thermocline.remoting.bodies import MessageRequestModes, SetMessageRequestModeRequestBody
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError

FILE_NAME = "messageRequestMode.json"


class RequestModeTable:
    """All request modes that were set."""

    def __init__(self, persister: ConfigPersister) -> None:
        self._persister = persister
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """The mode of a group and a topic; None when none was set."""
        return self._modes.get(topic, {}).get(group)

    async def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set how a group reads a topic; durable on return.

        Raises:
            UnavailableError: The file could not be written; the mode holds until the next start.
        """
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        await self._persister.save(FILE_NAME)

    async def replace(self, modes: MessageRequestModes) -> bool:
        """Take over, all at once, what a master has; durable on return. False when it is so already.

        Raises:
            UnavailableError: The file could not be written; the modes are as before.
        """
        before = self._modes
        if modes.message_request_mode_map == before:
            return False
        self._modes = modes.message_request_mode_map
        try:
            await self._persister.save(FILE_NAME)
        except Exception:
            self._modes = before
            raise
        return True

    def encode(self) -> bytes:
        """The file's content."""
        return MessageRequestModes(message_request_mode_map=self._modes).encode()

    def load(self, data: bytes | None) -> None:
        """Load a file's content.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        if data is None:
            return
        try:
            self._modes = MessageRequestModes.decode(data).message_request_mode_map
        except InvalidRequestError as error:
            raise CorruptDataError("request modes cannot be read", file=FILE_NAME, reason=str(error)) from error
