"""Routing rules: which cluster a request goes to, by its topic, group, user and client address.

    {"rules": [
      {"topic": "orders*", "cluster": "east", "alsoRead": ["default"]},
      {"group": "billing", "topic": "invoices", "cluster": "east"},
      {"user": "partner-*", "cluster": "west"},
      {"address": "10.1.0.0/16", "cluster": "west"}
    ]}

Rules
  - In their order; the first one counts whose conditions all hold. Where none does it is the default cluster.
  - `topic`, `group` and `user` are names, or the beginning of names with `*` behind it; `address` is an address or a
    network (CIDR). A rule has at least one of them.
  - `group` is a consumer group: no request without one fits.
  - Messages are sent to `cluster`, and consumers receive from it. They receive from the clusters in `alsoRead`, too:
    messages that are still there when a rule has moved a topic.
Bound: RULES_MAX rules; DECISIONS_MAX remembered decisions, then all are forgotten. Those about names of more than
REMEMBERED_CHARACTERS_MAX characters in all are not remembered: each remoting client may say any.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

import msgspec

from thermocline.proxy.messaging import Caller
from thermocline.proxy.routing.broker_names import DEFAULT_CLUSTER
from thermocline.remoting.errors import SettingError
from thermocline.remoting.socket_address import parse_ip_address

__all__ = ["Decision", "RoutingRule", "Rules", "parse_rules"]

RULES_MAX = 1_000
ALSO_READ_MAX = 16
DECISIONS_MAX = 10_000
REMEMBERED_CHARACTERS_MAX = 1_000
NAME_CHARACTERS_MAX = 255
ANY_ENDING = "*"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RoutingRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule as the file has it; an empty condition always holds."""

    topic: str = ""
    group: str = ""
    user: str = ""
    address: str = ""
    cluster: str
    also_read: tuple[str, ...] = msgspec.field(default=(), name="alsoRead")


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: list[RoutingRule]


class Decision(msgspec.Struct, frozen=True):
    """Where a request goes: the first cluster, and from all of them what is received comes."""

    clusters: tuple[str, ...] = (DEFAULT_CLUSTER,)

    @property
    def first(self) -> str:
        """The cluster that takes what is sent."""
        return self.clusters[0]


class _Condition:
    """The conditions of a rule, ready to be compared."""

    __slots__ = ("_network", "_patterns", "decision", "has_group")

    def __init__(self, rule: RoutingRule) -> None:
        self._patterns = tuple(
            (place, pattern.removesuffix(ANY_ENDING), pattern.endswith(ANY_ENDING))
            for place, pattern in enumerate((rule.topic, rule.user, rule.group))
            if pattern
        )
        self._network = _network(rule.address) if rule.address else None
        self.has_group = bool(rule.group)
        self.decision = Decision(tuple(dict.fromkeys((rule.cluster, *rule.also_read))))

    def holds(self, topic: str, group: str | None, caller: Caller) -> bool:
        """Whether all conditions hold; of the group where it is None: any."""
        names = topic, caller.user, group
        for place, start, is_open in self._patterns:
            name = names[place]
            if name is not None and (not name or not (name.startswith(start) if is_open else name == start)):
                return False
        return self._network is None or _is_within(caller.address, self._network)


class Rules:
    """Rules in force; see the module."""

    def __init__(self, rules: Iterable[RoutingRule] = ()) -> None:
        """Take rules that `parse_rules` has checked."""
        self.rules = tuple(rules)
        self._conditions = [_Condition(rule) for rule in self.rules]
        self._decisions: dict[tuple[str, str, str, str], Decision] = {}
        self.has_groups = any(condition.has_group for condition in self._conditions)

    def decide(self, topic: str, group: str, caller: Caller) -> Decision:
        """Where a request goes; `group` is empty without a consumer group."""
        key = topic, group, caller.user, caller.address
        decision = self._decisions.get(key)
        if decision is None:
            found = (each.decision for each in self._conditions if each.holds(topic, group, caller))
            decision = next(found, Decision())
            if sum(map(len, key)) <= REMEMBERED_CHARACTERS_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = decision
        return decision

    def of_any_group(self, topic: str, caller: Caller) -> list[Decision]:
        """Where requests of consumer groups may go, in the rules' order."""
        found = [each.decision for each in self._conditions if each.has_group and each.holds(topic, None, caller)]
        return list(dict.fromkeys(found))


def parse_rules(data: bytes, *, clusters: Collection[str], has_users: bool) -> Rules:
    """The rules in a file. `clusters`: those that rules may name. `has_users`: whether clients prove who they are.

    Raises:
        SettingError: It is no list of rules, or a rule cannot be one; the error counts rules from 1.
    """
    try:
        rules = msgspec.json.decode(data, type=_File).rules
    except msgspec.DecodeError as error:
        raise SettingError(f"the file of routing rules cannot be read: {error}") from error
    if len(rules) > RULES_MAX:
        raise SettingError(f"there are more than {RULES_MAX} routing rules", count=len(rules))
    for number, rule in enumerate(rules, start=1):
        problem = _problem(rule, clusters=clusters, has_users=has_users)
        if problem:
            raise SettingError(f"routing rule {number}: {problem}")
    return Rules(rules)


def _problem(rule: RoutingRule, *, clusters: Collection[str], has_users: bool) -> str:
    """What is wrong with a rule; "" for a good one."""
    if not (rule.topic or rule.group or rule.user or rule.address):
        return "it has no topic, group, user or address"
    for pattern in (rule.topic, rule.group, rule.user):
        if len(pattern) > NAME_CHARACTERS_MAX:
            return f"a name has at most {NAME_CHARACTERS_MAX} characters"
        if ANY_ENDING in pattern[:-1]:
            return "a * stands at the end of a name alone"
    if rule.user and not has_users:
        return "a user needs authenticationEnabled: without signatures it is not known who asks"
    if rule.address:
        try:
            _network(rule.address)
        except ValueError:
            return f"{rule.address[:64]} is no address and no network"
    if len(rule.also_read) > ALSO_READ_MAX:
        return f"alsoRead names more than {ALSO_READ_MAX} clusters"
    for name in (rule.cluster, *rule.also_read):
        if name not in clusters:
            return f"there is no cluster {name[:64]} in routingClusters"
    return ""


def _network(text: str) -> Network:
    """The network of a text; ValueError: it is none, or has bits of a host in it."""
    return ipaddress.ip_network(text.strip())


def _is_within(address: str, network: Network) -> bool:
    try:
        found = parse_ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return found.version == network.version and found in network
