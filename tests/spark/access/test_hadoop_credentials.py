"""fs.s3a.aws.credentials.provider: which sources its classes are, and what becomes of keys beside them."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.access.hadoop_credentials import HADOOP_PROFILE_PROVIDER, SESSION_KEYS, kinds_of_providers
from thermocline.spark.access.store_options import BucketOptions, store_options

S3A, SDK_2 = "org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.auth.credentials."
SIMPLE, TEMPORARY = f"{S3A}SimpleAWSCredentialsProvider", f"{S3A}TemporaryAWSCredentialsProvider"
ENVIRONMENT = f"{SDK_2}EnvironmentVariableCredentialsProvider"
ANONYMOUS = f"{S3A}AnonymousAWSCredentialsProvider"
MACHINE = f"{S3A}auth.IAMInstanceCredentialsProvider"
HADOOPS_DEFAULT = f"{TEMPORARY},\n      {SIMPLE},\n      {ENVIRONMENT},\n      {MACHINE}\n"
KEYS = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
TOKEN = {"fs.s3a.session.token": "t"}


def of(providers: str) -> dict[str, str]:
    return {"fs.s3a.aws.credentials.provider": providers}


def resolved(options: dict[str, str]) -> BucketOptions:
    return store_options(options).for_bucket("b")


@pytest.mark.parametrize(
    ("providers", "kinds"),
    [
        (SIMPLE, ("keys",)),
        (HADOOPS_DEFAULT, (SESSION_KEYS, "keys", "environment", "container", "instance")),
        ("com.amazonaws.auth.EnvironmentVariableCredentialsProvider", ("environment",)),
        ("com.amazonaws.auth.InstanceProfileCredentialsProvider", ("container", "instance")),
        (f"{SDK_2}InstanceProfileCredentialsProvider", ("instance",)),
        (f"{SDK_2}WebIdentityTokenFileCredentialsProvider", ("web-identity",)),
        (f"{SDK_2}DefaultCredentialsProvider", ("environment", "web-identity", "profile", "container", "instance")),
        (f"{ENVIRONMENT}, {ENVIRONMENT}", ("environment",)),
    ],
)
def test_classes_are_sources(providers: str, kinds: tuple[str, ...]) -> None:
    assert kinds_of_providers(providers) == kinds


@pytest.mark.parametrize(
    "name", [f"{S3A}auth.AssumedRoleCredentialProvider", f"{SDK_2}SystemPropertyCredentialsProvider", "com.acme.Ours"]
)
def test_a_class_of_a_jvm_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r'runs in a JVM only.*engine="s3a"') as refused:
        resolved(of(f"{SIMPLE},{name}") | KEYS)
    assert name in str(refused.value)


def test_hadoops_default_list_takes_keys_where_there_are_some() -> None:
    assert resolved(of(HADOOPS_DEFAULT)).credentials == ("environment", "container", "instance")
    with_keys = resolved(of(HADOOPS_DEFAULT) | KEYS | TOKEN)
    assert (with_keys.credentials, with_keys.access_key, with_keys.session_token) == (None, "k", "t")


def test_simple_keys_come_without_the_token() -> None:
    options = resolved(of(SIMPLE) | KEYS | TOKEN)
    assert (options.access_key, options.session_token) == ("k", None)


def test_keys_behind_another_source_wait_for_it() -> None:
    options = resolved(of(f"{ENVIRONMENT},{SIMPLE}") | KEYS)
    assert (options.credentials, options.access_key) == (("environment", "keys"), "k")
    assert resolved(of(f"{ENVIRONMENT},{ANONYMOUS}") | KEYS).credentials == ("environment", "anonymous")


@pytest.mark.parametrize("options", [of(SIMPLE), of(TEMPORARY) | KEYS, {"s3.credentials": "keys"}])
def test_keys_that_are_not_there_are_an_error(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="there are none for this bucket bucket=b"):
        resolved(options)


def test_own_names_come_first() -> None:
    options = of("com.acme.Ours") | KEYS
    assert resolved(options | {"s3.credentials": "environment, profile"}).credentials == ("environment", "profile")
    mine = resolved(options | {"s3.accessKey": "mine", "s3.secretKey": "secret"})
    assert (mine.credentials, mine.access_key) == (None, "mine")
    with pytest.raises(InvalidRequestError, match=r"one of keys, environment, .*value=magic"):
        resolved({"s3.credentials": "magic"})


def test_one_buckets_provider_is_its_own() -> None:
    options = store_options(of(SIMPLE) | KEYS | {"fs.s3a.bucket.open.aws.credentials.provider": ANONYMOUS})
    assert options.for_bucket("open").credentials == ("anonymous",)
    assert options.for_bucket("closed").credentials is None


def test_a_profile_is_hadoops_providers_alone() -> None:
    profile = {"fs.s3a.auth.profile.name": "history", "fs.s3a.auth.profile.file": "/etc/keys"}
    options = resolved(of(HADOOP_PROFILE_PROVIDER) | profile)
    assert (options.credentials, options.profile, options.credentials_file) == (("profile",), "history", "/etc/keys")
    options = resolved(of(f"{SDK_2}ProfileCredentialsProvider") | profile)
    assert (options.credentials, options.profile, options.credentials_file) == (("profile",), None, None)
