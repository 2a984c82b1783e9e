"""Assembly: puts a broker's parts together, family by family; the only folder of the broker that imports all others.

    base                what every family is made from: settings, disk, store, clock
    tables, reads,      the parts of each family, made, loaded and closed
    cluster, due, pops
    parts               these families in the order in which they need each other
    messages, pops      the two paths of messages: sends and pulls, POP
    cold_tier, helpers, the families that reach other processes
    state, local_store
    replicas            slaves of this broker, or its master
    merged_proxy        the proxy for gRPC clients, if there is one
    recurring, health   what runs beside requests
    processors          every family of requests, behind one dispatcher

`hot_process.py` starts and stops them in the order in which no acknowledged message is lost.
"""

from thermocline.broker.assembly.cold_tier import ColdTier
from thermocline.broker.assembly.connected_clients import ConnectedClients
from thermocline.broker.assembly.health import start_health
from thermocline.broker.assembly.helper_links import HelperLinks
from thermocline.broker.assembly.local_store import LocalStore, open_store
from thermocline.broker.assembly.merged_proxy import MergedProxy, ProxyPlan
from thermocline.broker.assembly.parts import BrokerParts, make_parts
from thermocline.broker.assembly.processors import make_dispatcher
from thermocline.broker.assembly.recurring import make_housekeeping, start_recurring_work
from thermocline.broker.assembly.replicas import Assignment, LogBefore, Replicas
from thermocline.broker.helpers import ProxyAddresses

__all__ = [
    "Assignment",
    "BrokerParts",
    "ColdTier",
    "ConnectedClients",
    "HelperLinks",
    "LocalStore",
    "LogBefore",
    "MergedProxy",
    "ProxyAddresses",
    "ProxyPlan",
    "Replicas",
    "make_dispatcher",
    "make_housekeeping",
    "make_parts",
    "open_store",
    "start_health",
    "start_recurring_work",
]
