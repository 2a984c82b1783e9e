"""How a bucket is reached: the project's own names over Hadoop's, one bucket's over all."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.access.store_options import BucketOptions, store_options


def bucket(name: str = "orders", **options: str) -> BucketOptions:
    return store_options({key.replace("__", "."): value for key, value in options.items()}).for_bucket(name)


def test_nothing_said_leaves_it_to_the_client() -> None:
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


def test_path_style_is_left_to_the_client_unless_said() -> None:
    assert store_options({"s3.endpoint": "http://host"}).for_bucket("b").path_style is None
    assert store_options({"s3.pathStyle": "TRUE"}).for_bucket("b").path_style is True
    assert store_options({"s3.pathStyle": "false"}).for_bucket("b").path_style is False


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
    for others in ("SSE-C", "CSE-KMS"):
        assert store_options({"fs.s3a.encryption.algorithm": others}).for_bucket("b").sse is None


def test_authorities_are_named_by_a_file() -> None:
    assert store_options({"s3.ca": "/etc/ca.pem"}).for_bucket("b").ca == "/etc/ca.pem"


def test_keys_are_in_no_repr() -> None:
    keys = {"s3.accessKey": "TOPSECRET", "s3.secretKey": "TOPSECRET", "s3.sessionToken": "TOPSECRET"}
    options = store_options(keys)
    assert "TOPSECRET" not in repr(options) + repr(options.for_bucket("b"))
