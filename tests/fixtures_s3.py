"""S3 servers for tests.

    def test_one(s3_server): ...           # versitygw, one for all tests of a worker; make buckets of your own in it
    def test_all(any_s3_server): ...       # the same test on every kind
    def test_crash(private_s3_server): ... # a server of the test's own, to kill and restart

`s3_bucket` is an empty bucket of the test's own in `s3_server`; `any_s3_bucket` in `any_s3_server`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest

from tests.certificates import make_certificates
from tests.fixtures_tools import have
from tests.full_cases import full
from thermocline.localstack import RECIPES, SERVER_KINDS, UNFIT_RECIPES, S3Server, ToolMissingError, start_server
from thermocline.localstack.cache_directory import default_cache_directory

DEFAULT_KIND = "versitygw"
QUICK_KINDS = (DEFAULT_KIND, "minio")
"""The kinds that start and answer at once."""
_bucket_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Bucket:
    """A bucket and how to reach it."""

    name: str
    endpoint: str
    region: str
    access_key: str
    secret_key: str

    @property
    def cold_url(self) -> str:
        """A cold tier in this bucket, as `coldUrl` takes it."""
        return (
            f"s3://{self.name}/cold?endpoint={self.endpoint}&region={self.region}&path_style=true"
            f"&access_key={self.access_key}&secret_key={self.secret_key}"
        )


def check_installed(kind: str) -> None:
    """Servers are installed by `make test`, never inside a test's time limit.

    Raises:
        ToolMissingError: It is not installed.
    """
    if not (RECIPES | UNFIT_RECIPES)[kind].is_installed(default_cache_directory()):
        raise ToolMissingError(f"{kind} is not installed: `make test` does it.")


def new_bucket(server: S3Server) -> S3Bucket:
    """An empty bucket that no other test has."""
    name = server.make_bucket(f"test-{next(_bucket_numbers):04}")
    return S3Bucket(
        name=name,
        endpoint=server.endpoint,
        region=server.region,
        access_key=server.access_key,
        secret_key=server.secret_key,
    )


def objects_in(server: S3Server, bucket: S3Bucket) -> list[str]:
    """The keys of the objects that are there: rclone goes on listing some that are not."""
    client = server.client()
    try:
        return [
            item["Key"]
            for item in client.list_objects_v2(Bucket=bucket.name).get("Contents", ())
            if _is_there(client, bucket.name, item["Key"])
        ]
    finally:
        client.close()


def _is_there(client: Any, bucket: str, key: str) -> bool:
    try:
        client.head_object(Bucket=bucket, Key=key)
    except botocore.exceptions.ClientError:
        return False
    return True


@pytest.fixture(scope="session")
def s3_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], S3Server]]:
    """`s3_servers(kind)`: the worker's server of that kind, started at its first use."""
    running: dict[str, S3Server] = {}
    with contextlib.ExitStack() as stack:

        def server_of(kind: str) -> S3Server:
            have(lambda: check_installed(kind))
            if kind not in running:
                running[kind] = stack.enter_context(start_server(kind, tmp_path_factory.mktemp(f"s3-{kind}")))
            return running[kind]

        yield server_of


@pytest.fixture(scope="session")
def tls_s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The worker's MinIO behind TLS, by an authority that no client trusts: `server.authority` is its file."""
    have(lambda: check_installed("minio"))
    folder = tmp_path_factory.mktemp("s3-tls")
    make_certificates(folder / "certificates")
    with start_server("minio", folder / "minio", certificates_directory=folder / "certificates") as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(s3_servers: Callable[[str], S3Server]) -> S3Server:
    """The worker's versitygw."""
    return s3_servers(DEFAULT_KIND)


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> S3Bucket:
    """An empty bucket in versitygw."""
    return new_bucket(s3_server)


@pytest.fixture(params=[*QUICK_KINDS, *full(*(kind for kind in SERVER_KINDS if kind not in QUICK_KINDS))])
def s3_server_kind(request: pytest.FixtureRequest) -> str:
    """Each kind of server in turn; in `make test` `QUICK_KINDS` alone, unless the test asks for more (`indirect`)."""
    return str(request.param)


@pytest.fixture
def any_s3_server(s3_server_kind: str, s3_servers: Callable[[str], S3Server]) -> S3Server:
    """The worker's server of each kind in turn."""
    return s3_servers(s3_server_kind)


@pytest.fixture
def any_s3_bucket(any_s3_server: S3Server) -> S3Bucket:
    """An empty bucket in each kind of server in turn."""
    return new_bucket(any_s3_server)


@pytest.fixture
def private_s3_server(tmp_path: Path) -> Iterator[S3Server]:
    """A versitygw that the test may kill and restart."""
    have(lambda: check_installed(DEFAULT_KIND))
    with start_server(DEFAULT_KIND, tmp_path / "s3") as server:
        yield server
