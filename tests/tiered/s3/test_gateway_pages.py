"""A gateway before the object store answers 404 by itself for a moment, as while its servers start: nothing is gone.

Covers `tiered/s3/s3_errors.py`, and what follows from it for the writer of a ledger.
"""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.fixtures_s3 import S3Bucket
from tests.s3_proxy import Forward, ProxiedRequest, S3Proxy
from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions, open_object_store
from thermocline.tiered.wrappers import RetryPolicy

pytestmark = pytest.mark.s3

AT_ONCE = RetryPolicy(attempts_max=2, first_delay_ms=0, delay_ms_max=0)


async def test_a_writer_is_not_fenced_by_the_404_of_a_gateway(s3_bucket: S3Bucket) -> None:
    is_away = False

    async def rule(request: ProxiedRequest, forward: Forward) -> web.Response:
        if is_away and request.method != "PUT":
            return web.Response(status=404, text="404 page not found\n")
        return await forward()

    async with S3Proxy(s3_bucket, rule=rule) as proxy:
        store = await open_object_store(proxy.bucket.cold_url, ObjectStoreOptions(retry=AT_ONCE))
        writer = await open_writer(store)
        await commit_segment(writer)
        is_away = True
        with pytest.raises(ObjectStoreUnavailableError):
            await commit_segment(writer, start=10)
        is_away = False
        assert (await writer.settle()).version == 3
        assert not writer.is_fenced
        assert await open_catalog(store, KEYS) == writer.catalog
        await store.close()
