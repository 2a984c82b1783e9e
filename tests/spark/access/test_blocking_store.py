"""Stores for code that blocks: opened once, usable from any thread, gone after closing and in a forked child."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures_s3 import new_bucket
from thermocline.localstack import S3Server
from thermocline.localstack.minio import KMS_KEY_ID
from thermocline.spark.access.blocking_store import blocking_store, close_stores
from thermocline.spark.access.store_options import StoreOptions, store_options
from thermocline.tiered.objects.errors import UntrustedStoreError

URL = "memory://blocking"


def test_a_store_is_opened_once_for_one_url_and_its_options() -> None:
    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(lambda _: blocking_store(URL, StoreOptions()), range(32)))
    assert len(set(map(id, opened))) == 1
    assert blocking_store(URL, store_options({"s3.region": "here"})) is not opened[0]
    assert blocking_store("memory://another", StoreOptions()) is not opened[0]


def test_calls_run_on_the_stores_own_loop() -> None:
    store = blocking_store(URL, StoreOptions())
    store.run(store.store.put("a/key", b"value"))
    answers = [store.submit(store.store.get_range("a/key", start=at, end=at + 1)) for at in range(5)]
    assert b"".join(answer.result() for answer in answers) == b"value"


def test_after_closing_a_store_is_opened_anew() -> None:
    before = blocking_store(URL, StoreOptions())
    close_stores()
    close_stores()
    after = blocking_store(URL, StoreOptions())
    assert after is not before
    after.run(after.store.put("another/key", b"value"))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_opens_its_own() -> None:
    """Neither the thread nor its loop survive a fork: a child that used the parent's would wait for ever."""
    store = blocking_store(URL, StoreOptions())
    store.run(store.store.put("a/key", b"value"))
    child = os.fork()
    if child == 0:
        own = blocking_store(URL, StoreOptions())
        os._exit(0 if own is not store and own.run(own.store.get("a/key")) == b"value" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.s3
@pytest.mark.xdist_group("s3-tls")
def test_options_of_a_read_reach_a_store_over_tls(tls_s3_server: S3Server) -> None:
    bucket = new_bucket(tls_s3_server)
    url = f"s3a://{bucket.name}/cold"
    options = {
        "fs.s3a.endpoint": bucket.endpoint,
        "fs.s3a.access.key": bucket.access_key,
        "fs.s3a.secret.key": bucket.secret_key,
    }
    authority = {"s3.ca": str(tls_s3_server.authority)}
    encrypted = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": KMS_KEY_ID}
    store = blocking_store(url, store_options(options))
    with pytest.raises(UntrustedStoreError, match="AWS_CA_BUNDLE"):
        store.run(store.store.get("c/b/head-hint"))
    store = blocking_store(url, store_options(options | authority | encrypted))
    store.run(store.store.put("c/b/pins/one.json", b"{}"))
    by_url = blocking_store(f"{bucket.cold_url}&ca={tls_s3_server.authority}&storage_class=X", StoreOptions())
    assert by_url.run(by_url.store.get("c/b/pins/one.json")) == b"{}"
    close_stores()
    client = tls_s3_server.client()
    try:
        answer = client.head_object(Bucket=bucket.name, Key="cold/c/b/pins/one.json")
    finally:
        client.close()
    assert answer["ServerSideEncryption"] == "aws:kms"
    assert answer["SSEKMSKeyId"].endswith(KMS_KEY_ID)
