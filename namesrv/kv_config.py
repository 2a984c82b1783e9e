"""KV configuration: small texts by namespace and key, such as the order configuration of topics.

In memory only: tools write it to every NameServer, and write it again when one has lost it.
Source: namesrv/kvconfig/KVConfigManager.java, Apache RocketMQ 5.3.
"""

from collections.abc import Mapping

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Topic -> `broker:queues;broker:queues`: the queues over which an ordered topic is spread."""


class KVConfig:
    """Namespaces of keys. A namespace exists from its first key on, also when all its keys are deleted."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key."""
        self._namespaces.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """A key's value; None when there is none."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; one that is not there is fine."""
        self._namespaces.get(namespace, {}).pop(key, None)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys of a namespace; None when nothing was ever put there."""
        table = self._namespaces.get(namespace)
        return None if table is None else dict(table)
