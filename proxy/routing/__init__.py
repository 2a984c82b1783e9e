"""Routing: which of several clusters a request goes to; the clusters, the rules, and the names of their brokers."""

from thermocline.proxy.routing.ask_clusters import OTHERS_TIMEOUT_S, ask_clusters
from thermocline.proxy.routing.broker_names import DEFAULT_CLUSTER, BrokerNames
from thermocline.proxy.routing.named_clusters import NamedCluster, parse_clusters
from thermocline.proxy.routing.routing import Routing
from thermocline.proxy.routing.rules import Decision, RoutingRule, Rules, parse_rules
from thermocline.proxy.routing.rules_file import RulesFile

__all__ = [
    "DEFAULT_CLUSTER",
    "OTHERS_TIMEOUT_S",
    "BrokerNames",
    "Decision",
    "NamedCluster",
    "Routing",
    "RoutingRule",
    "Rules",
    "RulesFile",
    "ask_clusters",
    "parse_clusters",
    "parse_rules",
]
