"""OpenedBucket: the cold tiers under a URL, each with its newest catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger import find_roots, open_catalog
from thermocline.tiered.objects import ObjectStore, without_options
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.stores import open_object_store


class BrokerTier(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's cold tier at one version."""

    store: ObjectStore
    keys: BrokerKeys
    catalog: Catalog


@asynccontextmanager
async def opened_bucket(
    url: str, *, broker: str | None, only_topics: frozenset[str] | None = None
) -> AsyncIterator[list[BrokerTier]]:
    """Open the store of `url` and the catalogs in it. `broker`: only the one of this name.

    Raises:
        ObjectNotFoundError: No broker, or none of this name, has a cold tier there.
        ObjectStoreUnavailableError: No answer.
        InvalidRequestError: It is no URL of a store.
        CorruptDataError: A ledger cannot be followed.
    """
    store = await open_object_store(url)
    try:
        tiers: list[BrokerTier] = []
        for root in await find_roots(store):
            keys = BrokerKeys(root)
            catalog = await open_catalog(store, keys, only_topics=only_topics)
            if broker is None or catalog.broker_name == broker:
                tiers.append(BrokerTier(store=store, keys=keys, catalog=catalog))
        if not tiers:
            context = {"url": without_options(url)} | ({"broker": broker} if broker is not None else {})
            raise ObjectNotFoundError("there is no cold tier at this URL", **context)
        yield tiers
    finally:
        await store.close()
