"""KV configuration: small texts by namespace and key, such as the order configuration of topics.

File, when the NameServer has a place for it (`kvConfigPath`): {"configTable":{namespace:{key:value}}}, RocketMQ's. A
change is durable before it counts. Several NameServers know nothing of each other: tools write to each.
Source: namesrv/kvconfig/KVConfigManager.java, Apache RocketMQ 5.3.
"""

from collections.abc import Mapping

import msgspec

from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.errors import CorruptDataError

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Topic -> `broker:queues;broker:queues`: the queues over which an ordered topic is spread."""


class _KVFile(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class KVConfig:
    """Namespaces of keys. A namespace exists from its first key on, also when all its keys are deleted."""

    def __init__(self, file: StateFile | None = None) -> None:
        """Take over what is in the file.

        Raises:
            CorruptDataError: It is no KV configuration.
            UnavailableError: It cannot be read.
        """
        self._file = file or StateFile("")
        data = self._file.load()
        try:
            self._namespaces = msgspec.json.decode(data, type=_KVFile).config_table if data else {}
        except msgspec.MsgspecError as error:
            raise CorruptDataError("the KV configuration cannot be read", path=self._file.path) from error

    def size_with(self, namespace: str, key: str, value: str) -> int:
        """How many characters the configuration would have with this key."""
        others = sum(
            len(space) + sum(len(name) + len(text) for name, text in table.items() if (space, name) != (namespace, key))
            for space, table in self._namespaces.items()
        )
        return others + (0 if namespace in self._namespaces else len(namespace)) + len(key) + len(value)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key; durable on return. UnavailableError: it could not be written, nothing changes."""
        self._change(namespace, {**self._namespaces.get(namespace, {}), key: value})

    def get(self, namespace: str, key: str) -> str | None:
        """A key's value; None when there is none."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key, durably; one that is not there is fine. UnavailableError: nothing changes."""
        table = self._namespaces.get(namespace)
        if table is not None and key in table:
            self._change(namespace, {name: value for name, value in table.items() if name != key})

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys of a namespace; None when nothing was ever put there."""
        table = self._namespaces.get(namespace)
        return None if table is None else dict(table)

    def _change(self, namespace: str, table: dict[str, str]) -> None:
        namespaces = {**self._namespaces, namespace: table}
        self._file.save(msgspec.json.encode(_KVFile(config_table=namespaces), order="sorted"))
        self._namespaces = namespaces
