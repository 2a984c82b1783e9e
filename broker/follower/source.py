"""Source: the broker whose cold tier a read-only broker serves, and the settings that make a broker read-only.

A read-only broker accepts and stores no message: brokerPermission is reading, no topic is made by use, no timer waits.
Its name is the source's with `-read-only` behind it, unless the settings give it another than the source's.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from thermocline.broker.settings import PERM_READ, BrokerConfig, BrokerSettings
from thermocline.remoting.errors import InvalidRequestError
from thermocline.store.config import FlushDiskType
from thermocline.tiered.ledger import LedgerReader, find_roots
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.segments import BrokerKeys

NAME_SUFFIX = "-read-only"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The broker whose history is served, by its names in the ledger."""

    cluster_name: str
    broker_name: str


async def find_source(bucket: ObjectStore, broker: BrokerConfig) -> Source:
    """The broker of the configured names when it has a ledger there; else the only one that has.

    Raises:
        InvalidRequestError: There is none, or one of several has to be named.
        ObjectStoreUnavailableError: The bucket does not answer.
        CorruptDataError: What is there cannot be read.
    """
    roots = await find_roots(bucket)
    root = BrokerKeys.of(cluster=broker.cluster_name, broker_name=broker.broker_name).root
    if root not in roots:
        if len(roots) != 1:
            there = ", ".join(roots) or "none"
            raise InvalidRequestError("name the cluster and the broker to serve the history of", there=there)
        root = roots[0]
    reader = await LedgerReader.open(bucket, BrokerKeys(root), only_topics=frozenset())
    return Source(cluster_name=reader.catalog.cluster, broker_name=reader.catalog.broker_name)


def make_read_only(settings: BrokerSettings, source: Source) -> None:
    """Have the settings of a broker that only serves what `source` has."""
    broker = settings.broker
    is_namesake = (broker.cluster_name, broker.broker_name) == (source.cluster_name, source.broker_name)
    settings.broker = replace(
        broker,
        broker_name=f"{source.broker_name}{NAME_SUFFIX}" if is_namesake else broker.broker_name,
        permission=PERM_READ,
        auto_create_topic=False,
        timer_wheel=False,
    )
    settings.store = replace(settings.store, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
