"""A URL opens the store it names; one that names none is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.object_store_url import ObjectStoreOptions, open_object_store, parse_s3_url
from thermocline.tiered.wrappers import Verb


async def test_a_directory(tmp_path: Path) -> None:
    options = ObjectStoreOptions()
    store = await open_object_store(f"file://{tmp_path}/with%20space", options)
    await store.put("a/b", b"1")
    assert (tmp_path / "with space/a/b").read_bytes() == b"1"
    assert options.counters.requests[Verb.PUT] == 1
    await store.close()


async def test_memory_is_shared_by_name() -> None:
    first, second = await open_object_store("memory://shared"), await open_object_store("memory://shared")
    other = await open_object_store("memory://other")
    await first.put("a", b"1")
    assert await second.get("a") == b"1"
    assert [info.key async for info in other.list("")] == []


async def test_a_bucket() -> None:
    store = await open_object_store("s3://bucket/some/prefix?endpoint=http://127.0.0.1:9&access_key=k&secret_key=s")
    await store.close()
    options = parse_s3_url("s3a://bucket/some%20prefix/?region=eu-north-1&path_style=false&session_token=t")
    assert (options.bucket, options.prefix, options.region) == ("bucket", "some prefix", "eu-north-1")
    assert (options.path_style, options.session_token, options.endpoint) == (False, "t", None)
    assert "secret" not in repr(parse_s3_url("s3://bucket?secret_key=secret"))


@pytest.mark.parametrize(
    "url",
    ["", "none", "/tmp/x", "file://host/x", "file:relative", "memory://", "s3://", "http://x", "s3://b?what=1"],
)
async def test_what_names_no_store(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        await open_object_store(url)


@pytest.mark.parametrize(
    "place",
    ["ftp://host/x", "s3://", "s3:///x", "http://bucket", "S3//bucket", "s3://[bucket", "file://host/x", "s3://b&x"],
)
async def test_no_error_tells_keys(place: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await open_object_store(f"{place}?what=1&access_key=AKIDSECRET&secret_key=TOPSECRET&session_token=TOKENSECRET")
    assert "SECRET" not in str(caught.value)
