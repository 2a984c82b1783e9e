"""How a bucket is reached: the project's own names over Hadoop's, one bucket's over all."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.access.store_options import BucketOptions, store_options


def bucket(name: str = "orders", **options: str) -> BucketOptions:
    return store_options({key.replace("__", "."): value for key, value in options.items()}).for_bucket(name)


def test_options_without_values_are_left_to_the_client() -> None:
    assert bucket() == BucketOptions(
        endpoint=None, region=None, path_style=None, access_key=None, secret_key=None, session_token=None
    )


def test_hadoop_settings_are_understood() -> None:
    options = store_options(
        {
            "fs.s3a.endpoint": "http://127.0.0.1:9000",
            "fs.s3a.endpoint.region": "eu-west-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "all",
            "fs.s3a.secret.key": "all-secret",
            "fs.s3a.bucket.orders.access.key": "one",
            "fs.s3a.bucket.orders.secret.key": "one-secret",
            "fs.s3a.bucket.orders.session.token": "token",
        }
    )
    assert options.for_bucket("orders") == BucketOptions(
        endpoint="http://127.0.0.1:9000",
        region="eu-west-1",
        path_style=True,
        access_key="one",
        secret_key="one-secret",
        session_token="token",
    )
    assert options.for_bucket("other").access_key == "all"
    assert options.for_bucket("other").session_token is None


def test_own_names_come_before_hadoops() -> None:
    options = store_options({"S3.Endpoint": "https://own", "fs.s3a.endpoint": "https://hadoop"})
    assert options.for_bucket("orders").endpoint == "https://own"


@pytest.mark.parametrize(
    ("endpoint", "tls", "url"),
    [
        ("minio:9000", "true", "https://minio:9000"),
        ("minio:9000", "false", "http://minio:9000"),
        ("http://minio:9000", "true", "http://minio:9000"),
    ],
)
def test_an_endpoint_without_a_scheme_takes_it_from_the_tls_setting(endpoint: str, tls: str, url: str) -> None:
    options = store_options({"fs.s3a.endpoint": endpoint, "fs.s3a.connection.ssl.enabled": tls})
    assert options.for_bucket("orders").endpoint == url


def test_path_style_is_left_to_the_client_by_default() -> None:
    assert store_options({"s3.endpoint": "http://host"}).for_bucket("b").path_style is None
    assert store_options({"s3.pathStyle": "TRUE"}).for_bucket("b").path_style is True
    assert store_options({"s3.pathStyle": "false"}).for_bucket("b").path_style is False


@pytest.mark.parametrize("name", ["s3.pathStyle", "s3.tls"])
def test_values_other_than_true_and_false_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'yes' is neither true nor false option={name}"):
        store_options({"s3.endpoint": "minio:9000", name: "yes"}).for_bucket("b")


@pytest.mark.parametrize("region", ["auto", "sdk", "EC2", ""])
def test_hadoops_words_for_any_region_are_none(region: str) -> None:
    assert store_options({"fs.s3a.endpoint.region": region}).for_bucket("b").region is None


@pytest.mark.parametrize("options", [{"s3.endpoint": "ftp://host"}, {"s3.endpoint": "http://"}, {"s3.accessKey": "a"}])
def test_unusable_values_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        store_options(options).for_bucket("b")


def test_secrets_are_not_in_the_text() -> None:
    options = store_options({"s3.accessKey": "a", "s3.secretKey": "very-secret", "s3.sessionToken": "very-token"})
    assert "very-" not in repr(options) + repr(options.for_bucket("b"))


def test_encryption_comes_by_either_name() -> None:
    kms = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:key"}
    options = store_options(kms).for_bucket("b")
    assert (options.sse, options.sse_kms_key_id) == ("aws:kms", "arn:key")
    options = store_options(kms | {"s3.sse": "AES256"}).for_bucket("b")
    assert (options.sse, options.sse_kms_key_id) == ("AES256", None)
    assert store_options({"fs.s3a.encryption.algorithm": "AES256"}).for_bucket("b").sse == "AES256"
    old = {"fs.s3a.server-side-encryption-algorithm": "SSE-KMS", "fs.s3a.server-side-encryption.key": "old"}
    options = store_options(old).for_bucket("b")
    assert (options.sse, options.sse_kms_key_id) == ("aws:kms", "old")
    assert store_options(old | kms).for_bucket("b").sse_kms_key_id == "arn:key"
    one = {"fs.s3a.bucket.b.server-side-encryption-algorithm": "AES256"}
    assert store_options(kms | one).for_bucket("b").sse == "AES256"


@pytest.mark.parametrize("other", ["SSE-C", "CSE-KMS", "DSSE-KMS"])
def test_an_encryption_that_nothing_here_writes_is_kept_in_mind(other: str) -> None:
    options = {"fs.s3a.encryption.algorithm": other}
    found = store_options(options).for_bucket("b")
    assert (found.sse, found.sse_unwritten) == (None, other)
    found = store_options(options | {"s3.sse": "AES256"}).for_bucket("b")
    assert (found.sse, found.sse_unwritten) == ("AES256", None)


def test_timeouts_and_connections_come_by_either_name() -> None:
    hadoop = {
        "fs.s3a.connection.establish.timeout": "15s",
        "fs.s3a.connection.timeout": "5m",
        "fs.s3a.connection.maximum": "100",
    }
    options = store_options(hadoop | {"fs.s3a.bucket.orders.connection.timeout": "2500"})
    of_bucket = options.for_bucket("orders")
    assert (of_bucket.connect_timeout_s, of_bucket.read_timeout_s, of_bucket.connections_max) == (15.0, 2.5, 100)
    assert options.for_bucket("other").read_timeout_s == 300.0
    own = {"s3.connectTimeout": "1s", "s3.readTimeout": "2s", "s3.connectionsMax": "3"}
    options = store_options(hadoop | own)
    mine = options.for_bucket("b")
    assert (mine.connect_timeout_s, mine.read_timeout_s, mine.connections_max) == (1.0, 2.0, 3)


@pytest.mark.parametrize(
    ("options", "attempts_max"),
    [
        ({}, 6),
        ({"fs.s3a.attempts.maximum": "1", "fs.s3a.retry.limit": "1"}, 4),
        ({"fs.s3a.attempts.maximum": "0"}, 8),
        ({"fs.s3a.retry.limit": "0"}, 6),
        ({"fs.s3a.retry.limit": "3", "s3.attemptsMax": "2"}, 2),
    ],
)
def test_attempts_are_those_of_s3a(options: dict[str, str], attempts_max: int) -> None:
    assert store_options(options).for_bucket("b").retry.attempts_max == attempts_max


def test_waits_begin_with_the_interval() -> None:
    retry = store_options({"fs.s3a.retry.interval": "500ms"}).for_bucket("b").retry
    assert (retry.first_delay_ms, retry.delay_ms_max) == (500, 5_000)
    retry = store_options({"s3.retryInterval": "7s"}).for_bucket("b").retry
    assert (retry.first_delay_ms, retry.delay_ms_max) == (7_000, 7_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fs.s3a.connection.timeout", "soon"),
        ("s3.connectTimeout", "0"),
        ("fs.s3a.connection.maximum", "0"),
        ("fs.s3a.attempts.maximum", "-1"),
        ("fs.s3a.retry.limit", "often"),
        ("fs.s3a.retry.interval", "1 fortnight"),
        ("s3.attemptsMax", "0"),
    ],
)
def test_invalid_numbers_are_refused_with_the_name_of_their_option(name: str, value: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        store_options({name: value}).for_bucket("b")
    assert name in str(refused.value)
    assert f"value={value}" in str(refused.value)


def test_authorities_are_named_by_a_file() -> None:
    assert store_options({"s3.ca": "/etc/ca.pem"}).for_bucket("b").ca == "/etc/ca.pem"


def test_keys_are_in_no_repr() -> None:
    keys = {"s3.accessKey": "TOPSECRET", "s3.secretKey": "TOPSECRET", "s3.sessionToken": "TOPSECRET"}
    options = store_options(keys)
    assert "TOPSECRET" not in repr(options) + repr(options.for_bucket("b"))
