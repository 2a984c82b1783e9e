"""Routing: the clusters behind a proxy, and which of them a request goes to now.

A retry topic is read wherever it is: a message that failed comes back in the cluster that it is in, whatever the rules
say by then.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from thermocline.proxy.messaging import Caller
from thermocline.proxy.routing.broker_names import DEFAULT_CLUSTER, BrokerNames
from thermocline.proxy.routing.named_clusters import parse_clusters
from thermocline.proxy.routing.rules import Decision, Rules, parse_rules
from thermocline.proxy.routing.rules_file import RulesFile
from thermocline.remoting.errors import SettingError
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = ["Routing"]


class Routing:
    """See the module. Belongs to one event loop."""

    def __init__(self, *, clusters: str = "", rules_path: str = "", has_users: bool = False) -> None:
        """`clusters`, `rules_path`: the settings `routingClusters` and `routingRulesPath`. `has_users`: whether clients
        prove who they are.

        Raises:
            SettingError: See `parse_clusters` and `RulesFile`; or there are clusters without rules.
        """
        self.clusters = parse_clusters(clusters)
        """Beside the default one."""
        self.cluster_names = (DEFAULT_CLUSTER, *(cluster.name for cluster in self.clusters))
        self.names = BrokerNames(self.cluster_names[1:])
        self._rules_path = rules_path
        if bool(self.clusters) != bool(rules_path):
            raise SettingError("routingClusters and routingRulesPath need each other")
        self._file: RulesFile | None = None
        if rules_path:
            parse = functools.partial(parse_rules, clusters=frozenset(self.cluster_names), has_users=has_users)
            self._file = RulesFile(rules_path, parse)
        self._no_rules = Rules()

    @property
    def has_clusters(self) -> bool:
        """Whether there is more than the default cluster."""
        return bool(self.clusters)

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return self._no_rules if self._file is None else self._file.rules

    def start(self) -> None:
        """Follow the file of rules from now on."""
        if self._file is not None:
            self._file.start()

    async def close(self) -> None:
        """Follow it no more. Idempotent."""
        if self._file is not None:
            await self._file.close()

    def decide(self, topic: str, group: str, caller: Caller) -> Decision:
        """Where a request goes; `group` is empty without a consumer group."""
        decision = self.rules.decide(topic, group or _group_of(topic), caller)
        if topic.startswith(RETRY_TOPIC_PREFIX):
            return Decision(tuple(dict.fromkeys((*decision.clusters, *self.cluster_names))))
        return decision

    def shown(self) -> dict[str, Any]:
        """The clusters and the rules in force, for people."""
        return {
            "path": self._rules_path,
            "refusal": "" if self._file is None else self._file.refusal,
            "rules": [msgspec.to_builtins(rule) for rule in self.rules.rules],
            "clusters": [
                {"name": each.name, "namesrvAddr": ";".join(each.namesrv), "rocketMQClusterName": each.cluster_name}
                for each in self.clusters
            ],
        }


def _group_of(topic: str) -> str:
    """The consumer group that a retry topic belongs to; "" for any other topic."""
    return topic.removeprefix(RETRY_TOPIC_PREFIX) if topic.startswith(RETRY_TOPIC_PREFIX) else ""
