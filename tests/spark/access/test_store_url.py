"""URLs of cold tiers, and the brokers found there."""

from __future__ import annotations

import contextlib
import itertools
import socket

import pytest

from tests.fixtures_s3 import S3Bucket
from tests.spark.cold_tier import ColdTier, flights
from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.access.store_options import StoreOptions, store_options
from thermocline.spark.access.store_url import STRANGERS_MAX, broker_roots, possible_prefixes, split_url
from thermocline.tiered.stores.object_store_url import parse_s3_url

_names = itertools.count()


def test_urls_are_split_by_scheme_and_bucket() -> None:
    assert split_url("s3a://bucket/cold/tier") == ("s3", "bucket")
    assert split_url("s3://bucket?endpoint=http://h") == ("s3", "bucket")
    assert split_url("file:///cold") == ("file", "")
    for url in ("s3a:///cold", "/cold", "http://host/cold", "cold"):
        with pytest.raises(InvalidRequestError, match="s3a://bucket/prefix"):
            split_url(url)


def test_a_url_may_mean_a_prefix_a_cluster_or_a_broker() -> None:
    assert list(possible_prefixes("s3a://b/x/y/z/?region=r")) == [
        ("s3a://b/x/y/z?region=r", ""),
        ("s3a://b/x/y?region=r", "z/"),
        ("s3a://b/x?region=r", "y/z/"),
    ]
    assert list(possible_prefixes("s3a://b")) == [("s3a://b", "")]
    assert list(possible_prefixes("s3a://b/c")) == [("s3a://b/c", ""), ("s3a://b", "c/")]
    assert list(possible_prefixes("file:///c")) == [("file:///c", "")]
    assert list(possible_prefixes("file:///x/c")) == [("file:///x/c", ""), ("file:///x", "c/")]


def test_keys_are_the_same_whatever_a_url_is_taken_for() -> None:
    secret = "a+b/c==?d"
    for url, _ in possible_prefixes(f"s3a://b/x/y/z/?region=r&secret_key={secret}"):
        assert parse_s3_url(url).secret_key == secret


def test_brokers_are_found_among_other_things() -> None:
    url = f"memory://url-{next(_names)}"
    for cluster, broker in (("c", "broker"), ("c", "broker-2"), ("c", "broker0"), ("d", "broker")):
        ColdTier(url, cluster=cluster, broker_name=broker).seal(flights("orders", 5))
    store = blocking_store(url, StoreOptions())
    for key in ("a-file", "c/note", "c/zzz/other/thing", "e/f/g"):
        store.run(store.store.put(key, b"x"))
    everything = ["c/broker", "c/broker-2", "c/broker0", "d/broker"]
    assert sorted(store.run(broker_roots(store.store, ""))) == everything
    assert sorted(store.run(broker_roots(store.store, "c/"))) == everything[:3]
    assert store.run(broker_roots(store.store, "c/broker/")) == ["c/broker"]
    assert store.run(broker_roots(store.store, "c/none/")) == []


def test_brokers_behind_many_other_folders_are_found_or_the_url_is_refused() -> None:
    """A search that gave up in silence read some of the brokers, and looked whole."""
    url = f"memory://url-{next(_names)}"
    for cluster in ("first", "other"):
        ColdTier(url, cluster=cluster).seal(flights("orders", 5))
    store = blocking_store(url, StoreOptions())
    for day in range(STRANGERS_MAX):
        store.run(store.store.put(f"lake/day={day:03}/part.parquet", b"x"))
    assert store.run(broker_roots(store.store, "")) == ["first/broker-a", "other/broker-a"]
    store.run(store.store.put(f"lake/day={STRANGERS_MAX:03}/part.parquet", b"x"))
    with pytest.raises(InvalidRequestError, match=r"more than 100 other folders .*name one cluster.*first/broker-a"):
        store.run(broker_roots(store.store, ""))
    assert store.run(broker_roots(store.store, "other/")) == ["other/broker-a"]
    below = blocking_store(f"{url}-none", StoreOptions())
    for day in range(STRANGERS_MAX + 1):
        below.run(below.store.put(f"lake/day={day:03}/part.parquet", b"x"))
    assert below.run(broker_roots(below.store, "")) == []


def test_errors_have_no_keys_of_the_url() -> None:
    for url in ("s3a:///cold?secret_key=TOPSECRET", "http://host/cold?access_key=a&secret_key=TOPSECRET"):
        with pytest.raises(InvalidRequestError) as caught:
            split_url(url)
        assert "TOPSECRET" not in str(caught.value)
        assert r"secret_key=***" in str(caught.value)


def test_encryption_and_authority_of_a_url_reach_the_store() -> None:
    url = "s3://bucket/cold?endpoint=https://127.0.0.1:9&access_key=k&secret_key=s"
    authorities = "/no/such/file.pem"
    with pytest.raises(InvalidRequestError, match=authorities):
        blocking_store(f"{url}&ca={authorities}", StoreOptions())
    with pytest.raises(InvalidRequestError, match=authorities):
        blocking_store(url, store_options({"s3.ca": authorities}))
    with pytest.raises(InvalidRequestError, match="sse"):
        blocking_store(f"{url}&sse=SSE-C", StoreOptions())
    assert blocking_store(f"{url}&sse=aws:kms&sse_kms_key_id=k", store_options({"s3.sse": "AES256"}))


def test_timeouts_and_attempts_reach_the_client() -> None:
    """A server that accepts connections and never answers gets the configured number of attempts."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            "fs.s3a.endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "fs.s3a.access.key": "k",
            "fs.s3a.secret.key": "s",
            "fs.s3a.connection.timeout": "200ms",
            "fs.s3a.attempts.maximum": "1",
            "fs.s3a.retry.limit": "0",
            "fs.s3a.retry.interval": "1ms",
        }
        store = blocking_store("s3a://bucket/cold", store_options(options))
        with pytest.raises(ObjectStoreUnavailableError, match="gives no answer"):
            store.run(store.store.get("key"))
        silent.setblocking(False)
        accepted = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                accepted += 1
        assert accepted == 2


@pytest.mark.s3
def test_an_encryption_that_nothing_here_writes_lets_reads_pass_and_no_puts(s3_bucket: S3Bucket) -> None:
    reached = {
        "s3.endpoint": s3_bucket.endpoint,
        "s3.region": s3_bucket.region,
        "s3.accessKey": s3_bucket.access_key,
        "s3.secretKey": s3_bucket.secret_key,
    }
    url = f"s3a://{s3_bucket.name}/cold"
    plain = blocking_store(url, store_options(reached))
    plain.run(plain.store.put("there", b"x"))
    store = blocking_store(url, store_options(reached | {"fs.s3a.encryption.algorithm": "SSE-C"}))
    assert store.run(store.store.get("there")) == b"x"
    for put in (store.store.put, store.store.create_if_absent):
        with pytest.raises(InvalidRequestError, match=r"give s3\.sse .*value=SSE-C object=pin"):
            store.run(put("pin", b"x"))
    with pytest.raises(ObjectNotFoundError):
        plain.run(plain.store.head("pin"))
